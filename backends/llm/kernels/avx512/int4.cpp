// Products of a few rows with packed int4 weights.
#include "panels.h"

constexpr i64 PANEL = 512;

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
  panels(N, PANEL, [&](i64 low, i64 high) {
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
