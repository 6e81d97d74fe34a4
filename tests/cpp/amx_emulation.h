// The tile registers and instructions of AMX in plain C++, as far as the kernels use them, so that their layouts, configuration and
// remainders can be tested on any CPU. For GCC's -include, with -DROOFLINE_AMX_EMULATED.
//
// Written from the instructions' pseudo-code: what is not configured, or out of range, ends the program.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct EmulatedAmx {
  bool configured;
  int rows[8], row_bytes[8];
  uint8_t data[8][16][64];
  long products;  // tile products since the configuration was loaded
};
inline thread_local EmulatedAmx emulated_amx;

static inline void amx_expect(bool condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "AMX: %s\n", what);
  abort();
}

static inline void emulated_tile_loadconfig(const void* memory) {
  uint8_t bytes[64];
  memcpy(bytes, memory, sizeof bytes);
  amx_expect(bytes[0] == 1, "palette 1 is the one there is");
  for (int i = 1; i < 16; ++i) amx_expect(bytes[i] == 0, "bytes 1 to 15 are 0");
  memset(&emulated_amx, 0, sizeof emulated_amx);
  for (int tile = 0; tile < 16; ++tile) {
    const int row_bytes = bytes[16 + 2 * tile] | bytes[17 + 2 * tile] << 8, rows = bytes[48 + tile];
    amx_expect(tile < 8 ? row_bytes <= 64 && rows <= 16 : row_bytes == 0 && rows == 0, "eight tiles of up to 16 rows of 64 bytes");
    if (tile < 8) emulated_amx.rows[tile] = rows, emulated_amx.row_bytes[tile] = row_bytes;
  }
  emulated_amx.configured = true;
}

static inline void emulated_tile_release(void) { emulated_amx.configured = false; }

static inline void emulated_tile_zero(int tile) {
  amx_expect(emulated_amx.configured && emulated_amx.rows[tile] > 0, "a tile that is not configured");
  memset(emulated_amx.data[tile], 0, sizeof emulated_amx.data[tile]);
}

static inline void emulated_tile_loadd(int tile, const void* memory, long stride) {
  amx_expect(emulated_amx.configured && emulated_amx.rows[tile] > 0, "load of a tile that is not configured");
  memset(emulated_amx.data[tile], 0, sizeof emulated_amx.data[tile]);
  for (int row = 0; row < emulated_amx.rows[tile]; ++row)
    memcpy(emulated_amx.data[tile][row], static_cast<const char*>(memory) + row * stride, emulated_amx.row_bytes[tile]);
}

static inline void emulated_tile_stored(int tile, void* memory, long stride) {
  amx_expect(emulated_amx.configured && emulated_amx.rows[tile] > 0, "store of a tile that is not configured");
  for (int row = 0; row < emulated_amx.rows[tile]; ++row)
    memcpy(static_cast<char*>(memory) + row * stride, emulated_amx.data[tile][row], emulated_amx.row_bytes[tile]);
}

static inline float amx_bf16(const uint8_t* p) {
  const uint32_t bits = static_cast<uint32_t>(p[0] | p[1] << 8) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// c[m][n] += sum over k of products(a[m][k], b[k][n]), words of 4 bytes.
template <class T, class Products>
static inline void amx_product(int c, int a, int b, Products products) {
  EmulatedAmx& amx = emulated_amx;
  amx_expect(amx.configured, "product without a configuration");
  amx_expect(c != a && c != b && a != b, "the three tiles differ");
  amx_expect(amx.rows[c] == amx.rows[a] && amx.row_bytes[c] == amx.row_bytes[b], "the result has rows of a, columns of b");
  amx_expect(amx.row_bytes[a] == 4 * amx.rows[b], "a row of a is as long as a column of b");
  for (int m = 0; m < amx.rows[c]; ++m)
    for (int k = 0; k < amx.row_bytes[a] / 4; ++k)
      for (int n = 0; n < amx.row_bytes[b] / 4; ++n) {
        T sum;
        memcpy(&sum, &amx.data[c][m][4 * n], sizeof sum);
        sum = products(sum, &amx.data[a][m][4 * k], &amx.data[b][k][4 * n]);
        memcpy(&amx.data[c][m][4 * n], &sum, sizeof sum);
      }
  ++amx.products;
}

static inline void emulated_tile_dpbf16ps(int c, int a, int b) {
  amx_product<float>(c, a, b, [](float sum, const uint8_t* x, const uint8_t* y) {
    return sum + (amx_bf16(x) * amx_bf16(y) + amx_bf16(x + 2) * amx_bf16(y + 2));
  });
}

static inline void emulated_tile_dpbssd(int c, int a, int b) {
  amx_product<uint32_t>(c, a, b, [](uint32_t sum, const uint8_t* x, const uint8_t* y) {
    for (int i = 0; i < 4; ++i) sum += static_cast<uint32_t>(static_cast<int8_t>(x[i]) * static_cast<int8_t>(y[i]));
    return sum;
  });
}

static inline void emulated_tile_dpbsud(int c, int a, int b) {
  amx_product<uint32_t>(c, a, b, [](uint32_t sum, const uint8_t* x, const uint8_t* y) {
    for (int i = 0; i < 4; ++i) sum += static_cast<uint32_t>(static_cast<int8_t>(x[i]) * y[i]);
    return sum;
  });
}

static inline void emulated_tile_dpbusd(int c, int a, int b) {
  amx_product<uint32_t>(c, a, b, [](uint32_t sum, const uint8_t* x, const uint8_t* y) {
    for (int i = 0; i < 4; ++i) sum += static_cast<uint32_t>(x[i] * static_cast<int8_t>(y[i]));
    return sum;
  });
}

// Instead of the compiler's own, which SIMDe brings.
#undef _tile_loadconfig
#define _tile_loadconfig emulated_tile_loadconfig
#undef _tile_release
#define _tile_release emulated_tile_release
#undef _tile_zero
#define _tile_zero emulated_tile_zero
#undef _tile_loadd
#define _tile_loadd emulated_tile_loadd
#undef _tile_stored
#define _tile_stored emulated_tile_stored
#undef _tile_dpbf16ps
#define _tile_dpbf16ps emulated_tile_dpbf16ps
#undef _tile_dpbssd
#define _tile_dpbssd emulated_tile_dpbssd
#undef _tile_dpbusd
#define _tile_dpbusd emulated_tile_dpbusd
#undef _tile_dpbsud
#define _tile_dpbsud emulated_tile_dpbsud
