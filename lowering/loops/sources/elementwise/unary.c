/* Operators: Abs Neg Sign Exp Log Sqrt Reciprocal Floor Ceil Round Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh
 * Acosh Atanh Erf Sigmoid Relu LeakyRelu ThresholdedRelu Elu Celu Selu HardSigmoid HardSwish Softplus Softsign Gelu
 * Mish Swish Shrink Not BitwiseNot IsNaN IsInf Identity Dropout Binarizer */

static inline O0 LOCAL(apply)(I0 x) {
#if defined OP_Abs
    return x < 0 ? -x : x == 0 ? 0 : x;
#elif defined OP_Neg
    return -x;
#elif defined OP_Sign
    return x != x ? x : (x > 0) - (x < 0);
#elif defined OP_Exp
    return exp(x);
#elif defined OP_Log
    return log(x);
#elif defined OP_Sqrt
    return sqrt(x);
#elif defined OP_Reciprocal
    return 1 / x;
#elif defined OP_Floor
    return floor(x);
#elif defined OP_Ceil
    return ceil(x);
#elif defined OP_Round
    return rint(x);
#elif defined OP_Sin
    return sin(x);
#elif defined OP_Cos
    return cos(x);
#elif defined OP_Tan
    return tan(x);
#elif defined OP_Asin
    return asin(x);
#elif defined OP_Acos
    return acos(x);
#elif defined OP_Atan
    return atan(x);
#elif defined OP_Sinh
    return sinh(x);
#elif defined OP_Cosh
    return cosh(x);
#elif defined OP_Tanh
    return tanh(x);
#elif defined OP_Asinh
    return asinh(x);
#elif defined OP_Acosh
    return acosh(x);
#elif defined OP_Atanh
    return atanh(x);
#elif defined OP_Erf
    return erf(x);
#elif defined OP_Sigmoid
    return 1 / (1 + exp(-x));
#elif defined OP_Relu
    return x < 0 ? 0 : x;
#elif defined OP_LeakyRelu
    return x < 0 ? (I0)A_alpha * x : x;
#elif defined OP_ThresholdedRelu
    return x > (I0)A_alpha ? x : 0;
#elif defined OP_Elu
    return x < 0 ? (I0)A_alpha * expm1(x) : x;
#elif defined OP_Celu
    return (x > 0 ? x : 0) + (x < 0 ? (I0)A_alpha * expm1(x / (I0)A_alpha) : 0) + (x != x ? x : 0);
#elif defined OP_Selu
    return (I0)A_gamma * (x < 0 ? (I0)A_alpha * expm1(x) : x);
#elif defined OP_HardSigmoid
    const I0 y = (I0)A_alpha * x + (I0)A_beta;
    return y < 0 ? 0 : y > 1 ? 1 : y;
#elif defined OP_HardSwish
    const I0 y = x / 6 + (I0)0.5;
    return x * (y < 0 ? 0 : y > 1 ? 1 : y);
#elif defined OP_Softplus
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
#elif defined OP_Softsign
    return x / (1 + fabs(x));
#elif defined OP_Gelu
    if (strcmp(A_approximate, "tanh") == 0)
        return (I0)0.5 * x * (1 + tanh((I0)0.7978845608028654 * (x + (I0)0.044715 * x * x * x)));
    return (I0)0.5 * x * (1 + erf(x * (I0)0.7071067811865476));
#elif defined OP_Mish
    return x * tanh((x > 0 ? x : 0) + log1p(exp(-fabs(x))));
#elif defined OP_Swish
    return x / (1 + exp(-(I0)A_alpha * x));
#elif defined OP_Shrink
    return x < -A_lambd ? x + A_bias : x > A_lambd ? x - A_bias : 0;
#elif defined OP_Not
    return !x;
#elif defined OP_BitwiseNot
    return (O0)~x;
#elif defined OP_IsNaN
    return x != x;
#elif defined OP_IsInf
    return (A_detect_positive && x == INFINITY) || (A_detect_negative && x == -INFINITY);
#elif defined OP_Binarizer
    return x > (I0)A_threshold;
#else
    return x;
#endif
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
#ifdef OP_Dropout
    if (HAS(2) && *(const bool *)in[2]->data && !(HAS(1) && (float)*IN(1) == 0))
        return "it drops at random: it is of training";
    if (WANTS(1)) {
        TRY(allocate(out[1], in[0]->rank, in[0]->shape, sizeof(O1)));
        memset(out[1]->data, 1, (size_t)count_elements(in[0]) * sizeof(O1));
    }
#endif
    if (!WANTS(0)) return NULL;
    TRY(allocate(out[0], in[0]->rank, in[0]->shape, sizeof(O0)));
    const int64_t count = count_elements(in[0]);
    for (int64_t i = 0; i < count; ++i) OUT(0)[i] = LOCAL(apply)(IN(0)[i]);
    return NULL;
}
