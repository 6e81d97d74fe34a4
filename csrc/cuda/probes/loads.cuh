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

template <class T>
__device__ inline void add_lanes(Vector<T>& sums, const Vector<T>& x) {
#pragma unroll
  for (int lane = 0; lane < static_cast<int>(16 / sizeof(T)); ++lane) sums.lane[lane] += x.lane[lane];
}
template <class T>
__device__ inline double sum_of_lanes(double sum, const Vector<T>& x) {
#pragma unroll
  for (int lane = 0; lane < static_cast<int>(16 / sizeof(T)); ++lane) sum += x.lane[lane];
  return sum;
}

}  // namespace roofline::cuda
