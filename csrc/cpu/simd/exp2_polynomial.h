// 2^f for |f| <= 0.5, minimax in relative error, and exactly 1 at 0; included by each instruction set's header. For results in
// elements T: of degree 5 for fp32 (6.8e-8; 2.2e-7 evaluated in fp32), of degree 4 for 16 bits (2.8e-6, a hundredth of fp16's rounding).
template <class T>
constexpr float kExp2[5] = {1.0f, 0.693124115f, 0.240241036f, 0.0559068769f, 0.00958270021f};
template <>
constexpr float kExp2<float>[6] = {1.0f, 0.693146586f, 0.240221664f, 0.0555104725f, 0.00967495237f, 0.00132029818f};

// 2^f for 0 <= f <= 1: for fp32 7.4e-8 (1.6e-7 evaluated in fp32), and exactly 1 at 0; for fp16 as above; for bf16 of degree 3 (7.5e-5,
// a twenty-fifth of its rounding).
template <class T>
constexpr float kExp2Above[5] = {1.0000026f, 0.6930025f, 0.24145119f, 0.051995117f, 0.013543634f};
template <>
constexpr float kExp2Above<Bf16>[4] = {0.99992523f, 0.69583349f, 0.22606718f, 0.07802455f};
template <>
constexpr float kExp2Above<float>[6] = {1.0f, 0.693151057f, 0.240166605f, 0.0557944849f, 0.00902269781f, 0.00186503376f};

template <int Terms>
ROOFLINE_INLINE Vec exp2_polynomial(const float (&terms)[Terms], Vec f) {
  Vec p = set1(terms[Terms - 1]);
#pragma GCC unroll 8
  for (int k = Terms - 2; k >= 0; --k) p = fma(p, f, set1(terms[k]));
  return p;
}
template <class T = float>
ROOFLINE_INLINE Vec exp2_polynomial(Vec f) {
  return exp2_polynomial(kExp2<T>, f);
}
