// Products of rows with bfloat16 and int8 weights, on tiles of 16 rows by 64 bytes (AMX). Weights
// lie as avx512/linears.cpp says, which is how a tile wants them.
#include <type_traits>

#include "../avx512/panels.h"

constexpr i64 PANEL_BYTES = 1 << 20;

// Tiles 0 to 3 hold sums, 4 and 5 rows, 6 and 7 weights. Of `first` rows in tile 4 and `second` in
// tile 5; where there are none, all sums belong to tile 4.
struct alignas(64) Shape {
  uint8_t palette = 1, start = 0, none[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {};
  Shape(i64 first, i64 second) {
    const i64 below = second ? second : first, each[] = {first, first, below, below, first, below};
    for (int i = 0; i < 6; i++) rows[i] = uint8_t(each[i]);
    rows[6] = rows[7] = 16;
  }
};

// Of 32 rows by 32 outputs, or 16 by 64 or 32: blocks of 16 by 16, a block row after the other.
template <class Sum> using Sums = Sum[4][16][16];

// x: rows, `stride` bytes apart; w: outputs by 16, `apart` bytes apart; the first `bytes` of a row,
// without what is left of them after 64s.
template <int ROWS, int COLUMNS, class Sum>
static INLINE void multiply(const char *x, i64 stride, const char *w, i64 apart, i64 bytes,
                            Sums<Sum> &sums) {
#define DOT(sum, row, column)                                                        \
  if constexpr (std::is_same_v<Sum, float>) _tile_dpbf16ps(sum, row, column);        \
  else _tile_dpbsud(sum, row, column)
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (i64 k = 0; k + 64 <= bytes; k += 64) {
    _tile_loadd(4, x + k, stride);
    _tile_loadd(6, w + k * 16, 64);
    DOT(0, 4, 6);
    _tile_loadd(7, w + apart + k * 16, 64);
    DOT(1, 4, 7);
    if constexpr (ROWS == 2) {
      _tile_loadd(5, x + 16 * stride + k, stride);
      DOT(2, 5, 6);
      DOT(3, 5, 7);
    }
    if constexpr (COLUMNS == 4) {
      _tile_loadd(6, w + 2 * apart + k * 16, 64);
      DOT(2, 4, 6);
      _tile_loadd(7, w + 3 * apart + k * 16, 64);
      DOT(3, 4, 7);
    }
  }
#undef DOT
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
}

// All rows by all outputs: finish(t, n, sums) for each row and 16 outputs.
template <class Sum, class F>
static INLINE void walk(const void *rows, const void *weight, i64 T, i64 N, i64 bytes, F &&finish) {
  const char *x = (const char *)rows, *w = (const char *)weight;
  const i64 most = std::max<i64>(64, PANEL_BYTES / bytes / 64 * 64);
  const Shape full(16, 16), left(std::min<i64>(T % 32, 16), std::max<i64>(T % 32 - 16, 0));
  panels(N, most, [&](i64 low, i64 high) {
    alignas(64) Sums<Sum> sums;
    auto block = [&](auto height, auto width, i64 t, i64 count) {
      for (i64 n = low; n < high; n += width * 16) {
        multiply<height, width>(x + t * bytes, bytes, w + n * bytes, 16 * bytes, bytes, sums);
        for (i64 r = 0; r < count; r++)
          for (int c = 0; c < width; c++)
            finish(t + r, n + c * 16, sums[r / 16 * width + c][r % 16]);
      }
    };
    constexpr std::integral_constant<int, 1> one;
    constexpr std::integral_constant<int, 2> two;
    constexpr std::integral_constant<int, 4> four;
    i64 t = 0;
    if (T >= 32) {
      _tile_loadconfig(&full);
      for (; t + 32 <= T; t += 32) block(two, two, t, 32);
    }
    if (t < T) {
      _tile_loadconfig(&left);
      if (T - t > 16) block(two, two, t, T - t);
      else if ((high - low) % 64 == 0) block(one, four, t, T - t);
      else block(one, two, t, T - t);
    }
    _tile_release();
  });
}

template <class Out>
static void bf16_linear(const bf16 *x, const bf16 *weight, const float *bias, Out *y, i64 T, i64 N,
                        i64 K) {
  walk<float>(x, weight, T, N, K * 2, [&](i64 t, i64 n, const float *sums) {
    __m512 b = bias ? load(bias + n) : _mm512_setzero_ps();
    store(y + t * N + n, _mm512_add_ps(load(sums), b));
  });
}
API void linear_bf16(const bf16 *x, const bf16 *w, const float *bias, void *y, i64 wide, i64 T,
                     i64 N, i64 K) {
  if (wide) bf16_linear(x, w, bias, (float *)y, T, N, K);
  else bf16_linear(x, w, bias, (bf16 *)y, T, N, K);
}

template <class Out>
static void int8_linear(const int8_t *x, const float *scales, const int32_t *sums, const uint8_t *w,
                        const float *weight_scales, const float *bias, Out *y, i64 T, i64 N, i64 K) {
  walk<int32_t>(x, w, T, N, K, [&](i64 t, i64 n, const int32_t *found) {
    __m512i whole = _mm512_sub_epi32(_mm512_load_si512(found), _mm512_set1_epi32(sums[t]));
    for (i64 k = K / 64 * 64; k < K; k += 4)
      whole = _mm512_dpbusd_epi32(whole, _mm512_loadu_si512(w + n * K + k * 16),
                                  _mm512_set1_epi32(pair(x + t * K + k)));
    __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(whole), _mm512_set1_ps(scales[t]));
    __m512 b = bias ? load(bias + n) : _mm512_setzero_ps();
    store(y + t * N + n, _mm512_fmadd_ps(v, load(weight_scales + n), b));
  });
}
API void linear_int8(const int8_t *x, const float *scales, const int32_t *sums, const uint8_t *w,
                     const float *weight_scales, const float *bias, void *y, i64 wide, i64 T, i64 N,
                     i64 K) {
  if (wide) int8_linear(x, scales, sums, w, weight_scales, bias, (float *)y, T, N, K);
  else int8_linear(x, scales, sums, w, weight_scales, bias, (bf16 *)y, T, N, K);
}
