/* Operators: RNN GRU LSTM */

/* For parts whose sizes depend on values: if sizes follow from shapes, a recurrence is a kernel. */
#if defined OP_RNN
#define GATES 1
#define USUAL ((const char *const[]){"Tanh"})
#elif defined OP_GRU
#define GATES 3
#define USUAL ((const char *const[]){"Sigmoid", "Tanh"})
#else
#define GATES 4
#define USUAL ((const char *const[]){"Sigmoid", "Tanh", "Tanh"})
#endif
#define FUNCTIONS ((int64_t)(sizeof USUAL / sizeof *USUAL))
#ifdef A_activations_count
#define FUNCTION(i) ((i) < A_activations_count ? A_activations[i] : USUAL[(i) % FUNCTIONS])
#else
#define FUNCTION(i) (USUAL[(i) % FUNCTIONS])
#endif

typedef struct {
    const char *name;
    double alpha, beta;
} LOCAL(activation);

static inline double LOCAL(sigmoid)(double x) { return 1 / (1 + exp(-x)); }

static inline I0 LOCAL(activate)(const LOCAL(activation) * f, double x) {
    switch (f->name[0] | 32) {
        case 'a': return (I0)(f->alpha * x + f->beta);
        case 'r': return (I0)(x > 0 ? x : 0);
        case 'l': return (I0)(x >= 0 ? x : f->alpha * x);
        case 'h': return (I0)fmax(0, fmin(1, f->alpha * x + f->beta));
        case 'e': return (I0)(x >= 0 ? x : f->alpha * expm1(x));
        case 't': return (I0)((f->name[1] | 32) == 'a' ? tanh(x) : x > f->alpha ? x : 0);
        default: break;
    }
    if ((f->name[1] | 32) == 'c') return (I0)(f->alpha * tanh(f->beta * x));
    if ((f->name[1] | 32) == 'i') return (I0)LOCAL(sigmoid)(x);
    return (I0)((f->name[4] | 32) == 's' ? x / (1 + fabs(x)) : fmax(x, 0) + log1p(exp(-fabs(x))));
}

/* The activations of all directions: those that have factors take them in order. */
static inline void LOCAL(list_activations)(int64_t count, LOCAL(activation) * list) {
    int64_t alphas = 0, betas = 0;
    for (int64_t i = 0; i < count; ++i) {
        const char *name = FUNCTION(i);
        const int first = name[0] | 32, second = name[1] | 32;
        const bool is_scaled = first == 's' && second == 'c', has_two = first == 'a' || first == 'h' || is_scaled;
        const bool has_one = first == 'l' || first == 'e' || (first == 't' && second == 'h');
        list[i] = (LOCAL(activation)){name, first == 'h' ? 0.2 : first == 'l' ? 0.01 : 1, first == 'h' ? 0.5 : 1};
        if ((has_two || has_one) && alphas < A_activation_alpha_count) list[i].alpha = A_activation_alpha[alphas++];
        if (has_two && betas < A_activation_beta_count) list[i].beta = A_activation_beta[betas++];
    }
}

static inline double LOCAL(clipped)(double x) {
#ifdef A_clip
    return fmax(-(double)A_clip, fmin((double)A_clip, x));
#else
    return x;
#endif
}

/* sums[g] = the rows of a matrix of weights times a vector, and the bias. */
static inline void LOCAL(multiply)(int64_t rows, int64_t columns, const I0 *matrix, const I0 *vector, const I0 *bias,
                                   I0 *sums) {
    for (int64_t i = 0; i < rows; ++i) {
        I0 sum = 0;
        for (int64_t k = 0; k < columns; ++k) sum += matrix[i * columns + k] * vector[k];
        sums[i] = sum + (bias ? bias[i] : 0);
    }
}

/* The state after a step: `x` has what the gates get from the input, `s` has room for what they get from the state. */
static inline void LOCAL(step)(int64_t hidden, const LOCAL(activation) * f, const I0 *r, const I0 *bias,
                               const I0 *peepholes, const I0 *x, I0 *s, I0 *h, I0 *c) {
    LOCAL(multiply)(GATES * hidden, hidden, r, h, bias, s);
#if defined OP_RNN
    for (int64_t j = 0; j < hidden; ++j) h[j] = LOCAL(activate)(f, LOCAL(clipped)(x[j] + s[j]));
#elif defined OP_GRU
    I0 *update = s, *reset = s + hidden, *state = s + 2 * hidden;
    for (int64_t j = 0; j < 2 * hidden; ++j) s[j] = LOCAL(activate)(f, LOCAL(clipped)(x[j] + s[j]));
    if (A_linear_before_reset) {
        for (int64_t j = 0; j < hidden; ++j) state[j] *= reset[j];
    } else {
        for (int64_t j = 0; j < hidden; ++j) reset[j] *= h[j];
        LOCAL(multiply)(hidden, hidden, r + 2 * hidden * hidden, reset, bias ? bias + 2 * hidden : NULL, state);
    }
    for (int64_t j = 0; j < hidden; ++j) {
        const I0 fresh = LOCAL(activate)(f + 1, LOCAL(clipped)(x[2 * hidden + j] + state[j]));
        h[j] = fresh - update[j] * fresh + update[j] * h[j];
    }
#else
    for (int64_t j = 0; j < hidden; ++j) {
        const I0 *p = peepholes ? peepholes + j : NULL;
        double enter = x[j] + s[j], leave = x[hidden + j] + s[hidden + j];
        double forget = x[2 * hidden + j] + s[2 * hidden + j], fresh = x[3 * hidden + j] + s[3 * hidden + j];
        if (p) enter += p[0] * c[j], forget += p[2 * hidden] * c[j];
        enter = LOCAL(activate)(f, LOCAL(clipped)(enter));
        forget = A_input_forget ? 1 - enter : LOCAL(activate)(f, LOCAL(clipped)(forget));
        c[j] = (I0)(forget * c[j] + enter * LOCAL(activate)(f + 1, LOCAL(clipped)(fresh)));
        if (p) leave += p[hidden] * c[j];
        h[j] = LOCAL(activate)(f, LOCAL(clipped)(leave)) * LOCAL(activate)(f + 2, c[j]);
    }
#endif
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const tensor *x = in[0], *w = in[1];
    const int64_t steps = x->shape[A_layout ? 1 : 0], batch = x->shape[A_layout ? 0 : 1], inputs = x->shape[2];
    const int64_t directions = w->shape[0], hidden = w->shape[1] / GATES, width = GATES * hidden;
    const int64_t all[2][4] = {{steps, directions, batch, hidden}, {batch, steps, directions, hidden}};
    const int64_t last[2][3] = {{directions, batch, hidden}, {batch, directions, hidden}};
    if (x->rank != 3 || directions != (strcmp(A_direction, "bidirectional") == 0 ? 2 : 1) ||
        !has_shape(w, 3, (int64_t[]){directions, width, inputs}) ||
        !has_shape(in[2], 3, (int64_t[]){directions, width, hidden}) ||
        (HAS(3) && !has_shape(in[3], 2, (int64_t[]){directions, 2 * width})) ||
        (HAS(7) && !has_shape(in[7], 2, (int64_t[]){directions, 3 * hidden})))
        return "the weights of a recurrence do not fit";
    if (HAS(4) && !has_shape(in[4], 1, &batch)) return "there is not one length for each sequence";
    for (int64_t n = 5; n < 7; ++n)
        if (HAS(n) && !has_shape(in[n], 3, last[A_layout != 0])) return "an initial state does not fit the sequences";
    if (WANTS(0)) TRY(allocate(out[0], 4, all[A_layout != 0], sizeof(I0)));
    if (WANTS(0)) memset(out[0]->data, 0, (size_t)count_elements(out[0]) * sizeof(I0));
    for (int64_t i = 1; i < 3; ++i)
        if (WANTS(i)) TRY(allocate(out[i], 3, last[A_layout != 0], sizeof(I0)));
    LOCAL(activation) functions[2 * 3];
    LOCAL(list_activations)(directions * FUNCTIONS, functions);
    I0 *room = malloc((size_t)(2 * width + 2 * hidden + 1) * sizeof(I0));
    if (room == NULL) return "out of memory";
    I0 *h = room + 2 * width, *c = h + hidden;
    const char *problem = NULL;
    for (int64_t d = 0; d < directions; ++d) {
        const bool is_reverse = d == 1 || strcmp(A_direction, "reverse") == 0;
        const I0 *bias = HAS(3) ? (const I0 *)in[3]->data + d * 2 * width : NULL;
        const I0 *peepholes = HAS(7) ? (const I0 *)in[7]->data + d * 3 * hidden : NULL;
        for (int64_t b = 0; b < batch; ++b) {
            const int64_t count = HAS(4) ? (int64_t)((const int32_t *)in[4]->data)[b] : steps;
            const int64_t state = (A_layout ? b * directions + d : d * batch + b) * hidden;
            if (count < 0 || count > steps) problem = "a sequence is longer than there are steps";
            for (int64_t j = 0; j < hidden; ++j) {
                h[j] = HAS(5) && count > 0 ? ((const I0 *)in[5]->data)[state + j] : 0;
                c[j] = HAS(6) && count > 0 ? ((const I0 *)in[6]->data)[state + j] : 0;
            }
            for (int64_t t = 0; t < count && !problem; ++t) {
                const int64_t at = is_reverse ? count - 1 - t : t;
                const I0 *row = IN(0) + (A_layout ? b * steps + at : at * batch + b) * inputs;
                LOCAL(multiply)(width, inputs, (const I0 *)w->data + d * width * inputs, row, bias, room);
                LOCAL(step)(hidden, functions + d * FUNCTIONS, (const I0 *)in[2]->data + d * width * hidden,
                            bias ? bias + width : NULL, peepholes, room, room + width, h, c);
                if (!WANTS(0)) continue;
                const int64_t place = A_layout ? (b * steps + at) * directions + d : (at * directions + d) * batch + b;
                memcpy((I0 *)out[0]->data + place * hidden, h, (size_t)hidden * sizeof(I0));
            }
            if (WANTS(1)) memcpy((I0 *)out[1]->data + state, h, (size_t)hidden * sizeof(I0));
            if (WANTS(2)) memcpy((I0 *)out[2]->data + state, c, (size_t)hidden * sizeof(I0));
        }
    }
    free(room);
    return problem;
}
