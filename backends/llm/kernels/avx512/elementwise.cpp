// Norms on the residual stream, and the gate of the feed-forward part.
#include "common.h"

// stream float32 [T][H]; delta bfloat16 or null; weight float32 or null for none; H % 16 == 0

API void add_norm(float *stream, const bf16 *delta, float scale, const float *weight, bf16 *y, i64 T,
                  i64 H, float eps) {
#pragma omp parallel for if (T > 8)
  for (i64 t = 0; t < T; t++) {
    float *row = stream + t * H;
    __m512 squares = _mm512_setzero_ps();
    for (i64 h = 0; h < H; h += 16) {
      __m512 v = load(row + h);
      if (delta) {
        v = _mm512_fmadd_ps(load(delta + t * H + h), _mm512_set1_ps(scale), v);
        store(row + h, v);
      }
      squares = _mm512_fmadd_ps(v, v, squares);
    }
    if (!weight) {
      for (i64 h = 0; h < H; h += 16) store(y + t * H + h, load(row + h));
      continue;
    }
    __m512 factor = _mm512_set1_ps(1.f / sqrtf(_mm512_reduce_add_ps(squares) / H + eps));
    for (i64 h = 0; h < H; h += 16)
      store(y + t * H + h, _mm512_mul_ps(_mm512_mul_ps(load(row + h), factor), load(weight + h)));
  }
}

API void norm(const bf16 *x, i64 x_stride, const float *weight, bf16 *y, i64 y_stride, i64 T, i64 H,
              float eps) {
#pragma omp parallel for if (T > 8)
  for (i64 t = 0; t < T; t++) {
    const bf16 *row = x + t * x_stride;
    __m512 squares = _mm512_setzero_ps();
    for (i64 h = 0; h < H; h += 16) {
      __m512 v = load(row + h);
      squares = _mm512_fmadd_ps(v, v, squares);
    }
    __m512 factor = _mm512_set1_ps(1.f / sqrtf(_mm512_reduce_add_ps(squares) / H + eps));
    for (i64 h = 0; h < H; h += 16)
      store(y + t * y_stride + h,
            _mm512_mul_ps(_mm512_mul_ps(load(row + h), factor), load(weight + h)));
  }
}

// x [T][2F] → y [T][F]: activation(first half) * second half. F % 16 == 0
API void gate(const bf16 *x, bf16 *y, i64 T, i64 F, i64 gelu) {
#pragma omp parallel for collapse(2) if (T * F > 4096)
  for (i64 t = 0; t < T; t++)
    for (i64 f = 0; f < F; f += 16) {
      __m512 a = load(x + t * 2 * F + f), b = load(x + t * 2 * F + F + f), s;
      if (gelu) {
        __m512 cube = _mm512_mul_ps(_mm512_mul_ps(a, a), a);
        __m512 inner = _mm512_fmadd_ps(cube, _mm512_set1_ps(0.044715f), a);
        s = sigmoid(_mm512_mul_ps(inner, _mm512_set1_ps(1.5957691216f)));
      } else {
        s = sigmoid(a);
      }
      store(y + t * F + f, _mm512_mul_ps(_mm512_mul_ps(a, s), b));
    }
}

// Rows to int8, symmetric, a scale per row. sums: of each group of `group` numbers, times `times`,
// which takes back that weights are stored with an offset. A row with anything that is not a
// finite number gets NaN for its scale, and so for every result: its request must fail, and no other.
API void quantise_rows(const bf16 *x, int8_t *q, float *scales, int32_t *sums, i64 T, i64 K,
                       i64 group, i64 times) {
#pragma omp parallel for if (T > 4)
  for (i64 t = 0; t < T; t++) {
    const bf16 *row = x + t * K;
    // As whole numbers: max_ps forgets a NaN, whose bits are above those of every number.
    __m512i most = _mm512_setzero_si512();
    for (i64 k = 0; k < K; k += 16)
      most = _mm512_max_epi32(most, _mm512_castps_si512(_mm512_abs_ps(load(row + k))));
    float scale = number(_mm512_reduce_max_epi32(most)) / 127.f;
    if (!std::isfinite(scale)) {
      scales[t] = NAN;
      memset(q + t * K, 0, K);
      memset(sums + t * (K / group), 0, K / group * sizeof(int32_t));
      continue;
    }
    if (scale == 0) scale = 1;
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
