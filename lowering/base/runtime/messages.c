/* Why a call failed: each thread has a message of its own. */
#include "eqfuse_runtime.h"

#include <stdarg.h>
#include <stdio.h>

static EQFUSE_OF_THREAD char message[512];

const char *eqfuse_message(void) { return message; }

void eqfuse_forget_message(void) { message[0] = 0; }

int eqfuse_fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    return -1;
}

/* A kernel's complaint about its arguments, before it returns something else than 0. */
EQFUSE_SERVICE void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
    size_t used = (size_t)snprintf(message, sizeof message, "%s: ", kind);
    for (int32_t i = 0; i < count && used < sizeof message; i++)
        if (parts[i]) used += (size_t)snprintf(message + used, sizeof message - used, "%s", parts[i]);
}
