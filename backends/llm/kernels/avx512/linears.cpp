// Matrix products of a few rows with packed weights: bfloat16, int8 and int4.
#include "common.h"

// N is a multiple of 32. Each thread takes a range of outputs and walks it in panels that stay in
// its cache while all rows pass by.

constexpr i64 PANEL = 512;

template <class F> static INLINE void panels(i64 N, F &&f) {
#pragma omp parallel
  {
    i64 thread = omp_get_thread_num(), threads = omp_get_num_threads(), blocks = N / 32;
    i64 low = blocks * thread / threads / 2 * 64;
    i64 high = thread + 1 == threads ? N : blocks * (thread + 1) / threads / 2 * 64;
    for (i64 n = low; n < high; n += PANEL) f(n, std::min(high, n + PANEL));
  }
}

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
  panels(N, [&](i64 low, i64 high) {
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

// Rows to int8, symmetric, a scale per row. sums: of each group of `group` numbers, times `times`,
// which takes back that weights are stored with an offset.
API void quantise_rows(const bf16 *x, int8_t *q, float *scales, int32_t *sums, i64 T, i64 K,
                       i64 group, i64 times) {
#pragma omp parallel for if (T > 4)
  for (i64 t = 0; t < T; t++) {
    const bf16 *row = x + t * K;
    __m512 most = _mm512_setzero_ps();
    for (i64 k = 0; k < K; k += 16) most = _mm512_max_ps(most, _mm512_abs_ps(load(row + k)));
    float scale = _mm512_reduce_max_ps(most) / 127.f;
    if (!(scale > 0)) scale = 1;
    scales[t] = scale;
    __m512 step = _mm512_set1_ps(scale);
    for (i64 g = 0; g < K / group; g++) {
      __m512i sum = _mm512_setzero_si512();
      for (i64 k = g * group; k < (g + 1) * group; k += 16) {
        __m512i whole = _mm512_cvtps_epi32(_mm512_div_ps(load(row + k), step));
        sum = _mm512_add_epi32(sum, whole);
        _mm_storeu_si128((__m128i *)(q + t * K + k), _mm512_cvtsepi32_epi8(whole));
      }
      sums[t * (K / group) + g] = (int32_t)times * _mm512_reduce_add_epi32(sum);
    }
  }
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
  panels(N, [&](i64 low, i64 high) {
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

// int4 by int8, in groups of 32 inputs. weight [N/16][K/8][16][4]: the low half of a byte is input
// 8j + i, the high half 8j + 4 + i, stored + 8; scales [N/16][K/32][16]; sums: of a group, times 8.
template <int ROWS, class Out>
static void int4_tile(const int8_t *x, const float *scales, const int32_t *sums, const uint8_t *weight,
                      const float *weight_scales, const float *bias, Out *y, i64 N, i64 K, i64 n) {
  const i64 groups = K / 32;
  const uint8_t *w = weight + n * K / 2;
  const float *group_scales = weight_scales + n * groups;
  const __m512i low_half = _mm512_set1_epi8(15);
  __m512 totals[ROWS];
  unroll<ROWS>([&](auto r) { totals[r] = _mm512_setzero_ps(); });
  for (i64 g = 0; g < groups; g++) {
    __m512i whole[ROWS];
    unroll<ROWS>([&](auto r) { whole[r] = _mm512_set1_epi32(-sums[r * groups + g]); });
    for (int j = 0; j < 4; j++) {
      __m512i both = _mm512_loadu_si512(w + (g * 4 + j) * 64);
      _mm_prefetch((const char *)(w + (g * 4 + j) * 64) + 2048, _MM_HINT_T0);
      __m512i low = _mm512_and_si512(both, low_half);
      __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_half);
      unroll<ROWS>([&](auto r) {
        const int8_t *a = x + r * K + g * 32 + j * 8;
        whole[r] = _mm512_dpbusd_epi32(whole[r], low, _mm512_set1_epi32(pair(a)));
        whole[r] = _mm512_dpbusd_epi32(whole[r], high, _mm512_set1_epi32(pair(a + 4)));
      });
    }
    __m512 scale = load(group_scales + g * 16);
    unroll<ROWS>([&](auto r) {
      totals[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[r]), scale, totals[r]);
    });
  }
  __m512 b = bias ? load(bias + n) : _mm512_setzero_ps();
  unroll<ROWS>([&](auto r) {
    store(y + r * N + n, _mm512_fmadd_ps(totals[r], _mm512_set1_ps(scales[r]), b));
  });
}
template <class Out>
static void int4_linear(const int8_t *x, const float *scales, const int32_t *sums, const uint8_t *w,
                        const float *weight_scales, const float *bias, Out *y, i64 T, i64 N, i64 K) {
  panels(N, [&](i64 low, i64 high) {
    i64 t = 0;
#define WALK(ROWS)                                                                            \
  for (; t + ROWS <= T; t += ROWS)                                                            \
    for (i64 n = low; n < high; n += 16)                                                      \
      int4_tile<ROWS>(x + t * K, scales + t, sums + t * (K / 32), w, weight_scales, bias,     \
                      y + t * N, N, K, n);
    WALK(8) WALK(4) WALK(2) WALK(1)
#undef WALK
  });
}
API void linear_int4(const int8_t *x, const float *scales, const int32_t *sums, const uint8_t *w,
                     const float *weight_scales, const float *bias, void *y, i64 wide, i64 T, i64 N,
                     i64 K) {
  if (wide) int4_linear(x, scales, sums, w, weight_scales, bias, (float *)y, T, N, K);
  else int4_linear(x, scales, sums, w, weight_scales, bias, (bf16 *)y, T, N, K);
}
