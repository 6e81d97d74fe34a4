// Included before a file that is compiled with ROOFLINE_SIMDE: what the AVX-512 wrappers use and SIMDe 0.7 does not emulate.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

// GCC's own of these names would demand AVX-512 of the compiler.
#define _mm512_stream_ps(memory, x) simde_mm512_storeu_ps(memory, x)
#define _mm512_mask_loadu_ps(other, mask, memory) roofline_simde_mask_load(other, mask, memory)
#define _mm512_mask_storeu_ps(memory, mask, x) roofline_simde_mask_store(memory, mask, x)
#define _mm512_shuffle_f32x4(a, b, order) roofline_simde_shuffle_quarters(a, b, order)
#define _mm512_reduce_add_ps(x) roofline_simde_reduce_add(x)
#define _mm512_reduce_max_ps(x) roofline_simde_reduce_max(x)

static inline simde__m512 roofline_simde_mask_load(simde__m512 other, unsigned mask, const float* memory) {
  float lanes[16];
  simde_mm512_storeu_ps(lanes, other);
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) lanes[i] = memory[i];
  return simde_mm512_loadu_ps(lanes);
}

static inline void roofline_simde_mask_store(float* memory, unsigned mask, simde__m512 x) {
  float lanes[16];
  simde_mm512_storeu_ps(lanes, x);
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) memory[i] = lanes[i];
}

static inline simde__m512 roofline_simde_shuffle_quarters(simde__m512 a, simde__m512 b, int order) {
  float from[2][16], lanes[16];
  simde_mm512_storeu_ps(from[0], a);
  simde_mm512_storeu_ps(from[1], b);
  for (int i = 0; i < 16; ++i) lanes[i] = from[i / 8][(order >> (i / 4 * 2) & 3) * 4 + i % 4];
  return simde_mm512_loadu_ps(lanes);
}

static inline float roofline_simde_reduce_add(simde__m512 x) {
  float lanes[16];
  simde_mm512_storeu_ps(lanes, x);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

static inline float roofline_simde_reduce_max(simde__m512 x) {
  float lanes[16];
  simde_mm512_storeu_ps(lanes, x);
  for (int i = 1; i < 16; ++i) lanes[0] = lanes[0] > lanes[i] ? lanes[0] : lanes[i];
  return lanes[0];
}
