/* Operators: Momentum Adagrad Adam */

/* Inputs are the rate, the number of updates, then the tensors, all their gradients, and their states. */
static const char *NAME(const tensor *const *in, tensor *const *out) {
    for (int64_t n = 0; n < 2; ++n)
        if (!has_elements(in[n], 1)) return "the rate or the number of updates is no single number";
    const double updates = (double)*(const int64_t *)in[1]->data;
    double rate = (double)*IN(0);
#if defined OP_Adam
    const int64_t count = (INPUTS - 2) / 4;
    if (updates > 0) rate *= sqrt(1 - pow((double)A_beta, updates)) / (1 - pow((double)A_alpha, updates));
#else
    const int64_t count = (INPUTS - 2) / 3;
#endif
#if defined OP_Adagrad
    rate /= 1 + updates * (double)A_decay_factor;
#endif
    for (int64_t n = 0; n < count; ++n) {
        const tensor *const *x = in + 2 + n;
        for (int64_t k = count; k < INPUTS - 2; k += count)
            if (!has_shape(x[k], x[0]->rank, x[0]->shape)) return "a gradient or state has another shape than its tensor";
        for (int64_t k = 0; k < OUTPUTS / count; ++k)
            TRY(allocate(out[n + k * count], x[0]->rank, x[0]->shape, sizeof(O0)));
        for (int64_t i = 0; i < count_elements(x[0]); ++i) {
            const double value = (double)((const O0 *)x[0]->data)[i];
            const double slope = (double)A_norm_coefficient * value + (double)((const O0 *)x[count]->data)[i];
            const double state = (double)((const O0 *)x[2 * count]->data)[i];
            double next = value, moved;
#if defined OP_Momentum
            moved = (double)A_alpha * state + (updates > 0 ? (double)A_beta : 1) * slope;
            next -= rate * (strcmp(A_mode, "nesterov") == 0 ? slope + (double)A_alpha * moved : moved);
#elif defined OP_Adagrad
            moved = state + slope * slope;
            next -= rate * slope / (sqrt(moved) + (double)A_epsilon);
#else
            moved = (double)A_alpha * state + (1 - (double)A_alpha) * slope;
            const double squares =
                (double)A_beta * (double)((const O0 *)x[3 * count]->data)[i] + (1 - (double)A_beta) * slope * slope;
            next -= rate * moved / (sqrt(squares) + (double)A_epsilon);
            next *= 1 - (double)A_norm_coefficient_post;
            ((O0 *)out[n + 2 * count]->data)[i] = (O0)squares;
#endif
            ((O0 *)out[n]->data)[i] = (O0)next;
            ((O0 *)out[n + count]->data)[i] = (O0)moved;
        }
    }
    return NULL;
}
