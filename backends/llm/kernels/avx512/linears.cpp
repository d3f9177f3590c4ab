// Matrix products of a few rows with packed weights: bfloat16 and int8.
#include "panels.h"

constexpr i64 PANEL = 512;

// bfloat16. weight [N/16][K/2][16][2]
template <int ROWS, int COLUMNS, class Out>
static void bf16_tile(const bf16 *x, const bf16 *weight, const float *bias, Out *y, i64 N, i64 K,
                      i64 n) {
  __m512 sums[ROWS * COLUMNS];
  unroll<COLUMNS>([&](auto c) {
    __m512 b = bias ? load(bias + n + c * 16) : _mm512_setzero_ps();
    unroll<ROWS>([&](auto r) { sums[r * COLUMNS + c] = b; });
  });
  const bf16 *w = weight + n * K;
  for (i64 k = 0; k < K; k += 2) {
    __m512bh part[COLUMNS];
    unroll<COLUMNS>([&](auto c) {
      part[c] = (__m512bh)_mm512_loadu_si512(w + c * 16 * K + k * 16);
      if (ROWS <= 8) _mm_prefetch((const char *)(w + c * 16 * K + k * 16) + 1024, _MM_HINT_T0);
    });
    unroll<ROWS>([&](auto r) {
      __m512bh a = (__m512bh)_mm512_set1_epi32(pair(x + r * K + k));
      unroll<COLUMNS>([&](auto c) {
        sums[r * COLUMNS + c] = _mm512_dpbf16_ps(sums[r * COLUMNS + c], part[c], a);
      });
    });
  }
  unroll<ROWS>([&](auto r) {
    unroll<COLUMNS>([&](auto c) { store(y + r * N + n + c * 16, sums[r * COLUMNS + c]); });
  });
}

template <class Out>
static void bf16_linear(const bf16 *x, const bf16 *weight, const float *bias, Out *y, i64 T, i64 N,
                        i64 K) {
  panels(N, PANEL, [&](i64 low, i64 high) {
    i64 t = 0;
#define WALK(ROWS, COLUMNS)                                     \
  for (; t + ROWS <= T; t += ROWS)                              \
    for (i64 n = low; n < high; n += COLUMNS * 16)              \
      bf16_tile<ROWS, COLUMNS>(x + t * K, weight, bias, y + t * N, N, K, n);
    if ((high - low) % 64 == 0) {
      WALK(6, 4) WALK(4, 4) WALK(2, 4) WALK(1, 2)
    } else {
      WALK(12, 2) WALK(8, 2) WALK(4, 2) WALK(2, 2) WALK(1, 2)
    }
#undef WALK
  });
}
API void linear_bf16(const bf16 *x, const bf16 *w, const float *bias, void *y, i64 wide, i64 T,
                     i64 N, i64 K) {
  if (wide) bf16_linear(x, w, bias, (float *)y, T, N, K);
  else bf16_linear(x, w, bias, (bf16 *)y, T, N, K);
}

// int8 by int8. weight [N/16][K/4][16][4], stored + 128; sums: of a row, times 128. One column of
// eight rows: with two columns gcc 12 spills the sums and the rate halves.
template <int ROWS, class Out>
static void int8_tile(const int8_t *x, const float *scales, const int32_t *sums, const uint8_t *weight,
                      const float *weight_scales, const float *bias, Out *y, i64 N, i64 K, i64 n) {
  __m512i whole[ROWS];
  unroll<ROWS>([&](auto r) { whole[r] = _mm512_set1_epi32(-sums[r]); });
  const uint8_t *w = weight + n * K;
  for (i64 k = 0; k < K; k += 4) {
    __m512i part = _mm512_loadu_si512(w + k * 16);
    _mm_prefetch((const char *)(w + k * 16) + 1024, _MM_HINT_T0);
    unroll<ROWS>([&](auto r) {
      whole[r] = _mm512_dpbusd_epi32(whole[r], part, _mm512_set1_epi32(pair(x + r * K + k)));
    });
  }
  __m512 scale = load(weight_scales + n), b = bias ? load(bias + n) : _mm512_setzero_ps();
  unroll<ROWS>([&](auto r) {
    __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(whole[r]), _mm512_set1_ps(scales[r]));
    store(y + r * N + n, _mm512_fmadd_ps(v, scale, b));
  });
}
template <class Out>
static void int8_linear(const int8_t *x, const float *scales, const int32_t *sums, const uint8_t *w,
                        const float *weight_scales, const float *bias, Out *y, i64 T, i64 N, i64 K) {
  panels(N, PANEL, [&](i64 low, i64 high) {
    i64 t = 0;
#define WALK(ROWS)                                                                         \
  for (; t + ROWS <= T; t += ROWS)                                                         \
    for (i64 n = low; n < high; n += 16)                                                   \
      int8_tile<ROWS>(x + t * K, scales + t, sums + t, w, weight_scales, bias, y + t * N, N, K, n);
    WALK(8) WALK(4) WALK(2) WALK(1)
#undef WALK
  });
}
API void linear_int8(const int8_t *x, const float *scales, const int32_t *sums, const uint8_t *w,
                     const float *weight_scales, const float *bias, void *y, i64 wide, i64 T, i64 N,
                     i64 K) {
  if (wide) int8_linear(x, scales, sums, w, weight_scales, bias, (float *)y, T, N, K);
  else int8_linear(x, scales, sums, w, weight_scales, bias, (bf16 *)y, T, N, K);
}
