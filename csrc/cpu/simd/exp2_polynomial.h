// 2^f for |f| <= 0.5, degree 5, minimax in relative error (7.5e-8; 2.3e-7 evaluated in fp32); included by every set's header.
constexpr float kExp2[6] = {1.0000001192f, 0.693146944f, 0.240221202f, 0.0555071309f, 0.00967554096f, 0.00132764725f};

ROOFLINE_INLINE Vec exp2_polynomial(Vec f) {
  Vec p = set1(kExp2[5]);
  p = fma(p, f, set1(kExp2[4]));
  p = fma(p, f, set1(kExp2[3]));
  p = fma(p, f, set1(kExp2[2]));
  p = fma(p, f, set1(kExp2[1]));
  return fma(p, f, set1(kExp2[0]));
}
