// 128-bit loads of the memory probes.
#pragma once

namespace roofline::cuda {

template <class T>
struct alignas(16) Vector {
  T lane[16 / sizeof(T)];
};

// ld.global.cg: past L1, which would otherwise serve a second pass over a small array.
__device__ inline Vector<float> load(const Vector<float>* p) {
  const float4 x = __ldcg(reinterpret_cast<const float4*>(p));
  return {{x.x, x.y, x.z, x.w}};
}
__device__ inline Vector<double> load(const Vector<double>* p) {
  const double2 x = __ldcg(reinterpret_cast<const double2*>(p));
  return {{x.x, x.y}};
}

}  // namespace roofline::cuda
