// Norms on the residual stream, and the gate of the feed-forward part. The same as with AVX512.
#include "common.h"

// stream float32 [T][H]; delta bfloat16 or null; weight float32 or null for none; H % 16 == 0

// 1 / the root of the mean square, of two vectors of squares.
static INLINE __m256 root_factor(__m256 squares, __m256 others, i64 H, float eps) {
  return _mm256_set1_ps(1.f / sqrtf(sum(_mm256_add_ps(squares, others)) / H + eps));
}

template <class In>
static INLINE void scaled(const In *row, __m256 factor, const float *weight, bf16 *y, i64 H) {
  for (i64 h = 0; h < H; h += 8)
    store(y + h, _mm256_mul_ps(_mm256_mul_ps(load(row + h), factor), load(weight + h)));
}

API void add_norm(float *stream, const bf16 *delta, float scale, const float *weight, bf16 *y, i64 T,
                  i64 H, float eps) {
#pragma omp parallel for if (T > 8)
  for (i64 t = 0; t < T; t++) {
    float *row = stream + t * H;
    __m256 squares[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (i64 h = 0; h < H; h += 16)
      unroll<2>([&](auto i) {
        __m256 v = load(row + h + i * 8);
        if (delta) {
          v = _mm256_fmadd_ps(load(delta + t * H + h + i * 8), _mm256_set1_ps(scale), v);
          store(row + h + i * 8, v);
        }
        squares[i] = _mm256_fmadd_ps(v, v, squares[i]);
      });
    if (weight) {
      scaled(row, root_factor(squares[0], squares[1], H, eps), weight, y + t * H, H);
    } else {
      for (i64 h = 0; h < H; h += 8) store(y + t * H + h, load(row + h));
    }
  }
}

API void norm(const bf16 *x, i64 x_stride, const float *weight, bf16 *y, i64 y_stride, i64 T, i64 H,
              float eps) {
#pragma omp parallel for if (T > 8)
  for (i64 t = 0; t < T; t++) {
    const bf16 *row = x + t * x_stride;
    __m256 squares[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (i64 h = 0; h < H; h += 16)
      unroll<2>([&](auto i) {
        __m256 v = load(row + h + i * 8);
        squares[i] = _mm256_fmadd_ps(v, v, squares[i]);
      });
    scaled(row, root_factor(squares[0], squares[1], H, eps), weight, y + t * y_stride, H);
  }
}

// x [T][2F] → y [T][F]: activation(first half) * second half. F % 16 == 0
API void gate(const bf16 *x, bf16 *y, i64 T, i64 F, i64 gelu) {
#pragma omp parallel for collapse(2) if (T * F > 4096)
  for (i64 t = 0; t < T; t++)
    for (i64 f = 0; f < F; f += 16)
      unroll<2>([&](auto i) {
        const bf16 *at = x + t * 2 * F + f + i * 8;
        __m256 a = load(at), b = load(at + F), s;
        if (gelu) {
          __m256 cube = _mm256_mul_ps(_mm256_mul_ps(a, a), a);
          __m256 inner = _mm256_fmadd_ps(cube, _mm256_set1_ps(0.044715f), a);
          s = sigmoid(_mm256_mul_ps(inner, _mm256_set1_ps(1.5957691216f)));
        } else {
          s = sigmoid(a);
        }
        store(y + t * F + f + i * 8, _mm256_mul_ps(_mm256_mul_ps(a, s), b));
      });
}
