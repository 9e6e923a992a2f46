/* Operators: Add Sub Mul Div Pow Mod PRelu Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor BitwiseAnd
 * BitwiseOr BitwiseXor BitShift */

/* The quotient and the remainder of integers by zero are 0. `multiplies`: integers to the powers 2 and 3 are products. */

static inline O0 LOCAL(apply)(I0 a, I1 b, bool multiplies) {
#if defined OP_Add
    return a + b;
#elif defined OP_Sub
    return a - b;
#elif defined OP_Mul
    return a * b;
#elif defined OP_Div
#if !IS_FLOAT(I0)
    if (b == 0) return 0;
    if (LOWEST_I0 < 0 && b == (I1)-1) return (O0)(0 - (uint64_t)a);
#endif
    return a / b;
#elif defined OP_Pow
#if IS_FLOAT(I0)
    return (O0)pow(a, b);
#else
    if (multiplies && b == 2) return (O0)((uint64_t)a * (uint64_t)a);
    if (multiplies && b == 3) return (O0)((uint64_t)a * (uint64_t)a * (uint64_t)a);
    return TRUNCATE(O0, LOWEST_O0, pow((double)a, (double)b));
#endif
#elif defined OP_Mod
#if IS_FLOAT(I0)
    const I0 rest = fmod(a, b);
    return A_fmod || rest == 0 || (rest < 0) == (b < 0) ? rest : rest + b;
#else
    if (b == 0) return 0;
    if (LOWEST_I0 < 0 && b == (I1)-1) return 0;
    const I0 rest = a % b;
    return A_fmod || rest == 0 || (rest < 0) == (b < 0) ? rest : rest + b;
#endif
#elif defined OP_PRelu
    return a < 0 ? a * b : a;
#elif defined OP_Equal
    return a == b;
#elif defined OP_Less
    return a < b;
#elif defined OP_LessOrEqual
    return a <= b;
#elif defined OP_Greater
    return a > b;
#elif defined OP_GreaterOrEqual
    return a >= b;
#elif defined OP_And
    return a && b;
#elif defined OP_Or
    return a || b;
#elif defined OP_Xor
    return !a != !b;
#elif defined OP_BitwiseAnd
    return a & b;
#elif defined OP_BitwiseOr
    return a | b;
#elif defined OP_BitwiseXor
    return a ^ b;
#elif defined OP_BitShift
    if (b < 0 || (uint64_t)b >= 8 * sizeof(I0)) return A_direction[0] == 'R' && a < 0 ? (O0)-1 : 0;
    return A_direction[0] == 'L' ? (O0)((uint64_t)a << b) : (O0)(a >> b);
#endif
}

/* Whether rows of the first operand have one element of the second: the last axis that has several decides. */
static inline bool LOCAL(shares_elements)(const tensor *whole, const tensor *own) {
    for (int64_t i = 1; i <= whole->rank && i <= MAX_OF(own->rank, 1); ++i) {
        const int64_t extent = own->rank ? own->shape[own->rank - i] : 1;
        if (whole->shape[whole->rank - i] != 1 || extent != 1) return extent == 1;
    }
    return false;
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    int64_t rank = in[0]->rank, shape[MAX_RANK], left[MAX_RANK], right[MAX_RANK], index[MAX_RANK] = {0};
    memcpy(shape, in[0]->shape, sizeof shape);
    if (!broadcast_shape(&rank, shape, in[1])) return "two shapes cannot be broadcast to one";
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    broadcast_strides(in[0], rank, left);
    broadcast_strides(in[1], rank, right);
    const int64_t inner = rank ? shape[rank - 1] : 1, outer = rank ? product(rank - 1, shape) : 1;
    const int64_t a = rank ? left[rank - 1] : 0, b = rank ? right[rank - 1] : 0;
    const bool multiplies = LOCAL(shares_elements)(in[0], in[1]);
    O0 *result = OUT(0);
    for (int64_t i = 0; i < outer; ++i, result += inner) {
        const I0 *x = IN(0) + offset_of(rank - 1, index, left);
        const I1 *y = IN(1) + offset_of(rank - 1, index, right);
        for (int64_t k = 0; k < inner; ++k) result[k] = LOCAL(apply)(x[k * a], y[k * b], multiplies);
        advance(rank - 1, shape, index);
    }
    return NULL;
}
