/* A compiled model behind HTTP, without any other runtime:  service [PORT [THREADS]], with port 0 any free one.
 *
 * POST takes the bytes of all inputs, one behind the other, and answers with those of all outputs; GET says what they are.
 * Each thread has a context of its own and serves one connection at a time, so as many requests run at once as there are
 * threads; the weights are there once. For models whose shapes are fixed. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "eqfuse_model.h"

#define MOST_HEADER 8192 /* bytes of a request before its body */

static int listener;

static int send_all(int connection, const void *bytes, size_t count) {
    for (const char *next = bytes; count;) {
        ssize_t sent = send(connection, next, count, MSG_NOSIGNAL);
        if (sent <= 0) return -1;
        next += sent, count -= (size_t)sent;
    }
    return 0;
}

static void answer(int connection, const char *status, const void *body, size_t bytes) {
    char header[256];
    int length = snprintf(header, sizeof header, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", status, bytes);
    if (!send_all(connection, header, (size_t)length)) send_all(connection, body, bytes);
}

static size_t total_bytes(const eqfuse_tensor_info *tensors, int count) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += tensors[i].bytes;
    return bytes;
}

static size_t describe(char *text, size_t size, const char *kind, const eqfuse_tensor_info *tensors, int count) {
    size_t used = 0;
    for (int i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s %s: %s, %zu bytes\n", kind, tensors[i].name, tensors[i].dtype, tensors[i].bytes);
    return used < size ? used : size;
}

/* Reads until the buffer holds `wanted` bytes, or the header's end where that is 0. What it holds, or -1. */
static ssize_t receive(int connection, char *buffer, size_t size, size_t held, size_t wanted) {
    while (wanted ? held < wanted : !memmem(buffer, held, "\r\n\r\n", 4)) {
        ssize_t got = held < size ? recv(connection, buffer + held, size - held, 0) : -1;
        if (got <= 0) return -1;
        held += (size_t)got;
    }
    return (ssize_t)held;
}

static void serve(int connection, eqfuse_context *context, char *request, char *response, const void **inputs, void **outputs) {
    const eqfuse_model *model = &eqfuse_network;
    size_t body = total_bytes(model->inputs, model->input_count), size = MOST_HEADER + body;
    ssize_t held = receive(connection, request, size, 0, 0);
    if (held < 0) return;
    size_t header = (size_t)((char *)memmem(request, (size_t)held, "\r\n\r\n", 4) + 4 - request), length = 0;
    if (header > MOST_HEADER) return answer(connection, "431 Request Header Fields Too Large", "", 0);
    if (!strncmp(request, "GET ", 4)) {
        char text[4096];
        size_t used = describe(text, sizeof text, "input", model->inputs, model->input_count);
        used += describe(text + used, sizeof text - used, "output", model->outputs, model->output_count);
        return answer(connection, "200 OK", text, used);
    }
    for (char *line = request; line < request + header; line = memmem(line, (size_t)(request + header - line), "\r\n", 2), line += 2)
        if (!strncasecmp(line, "Content-Length:", 15)) length = strtoul(line + 15, NULL, 10);
    if (length != body) return answer(connection, "400 Bad Request", "the body must be all inputs\n", 28);
    if (receive(connection, request, size, (size_t)held, header + body) < 0) return;
    size_t place = header;
    for (int i = 0; i < model->input_count; place += model->inputs[i++].bytes) inputs[i] = request + place;
    if (eqfuse_run(context, inputs, outputs))
        return answer(connection, "500 Internal Server Error", eqfuse_message(), strlen(eqfuse_message()));
    answer(connection, "200 OK", response, total_bytes(model->outputs, model->output_count));
}

static void *work(void *unused) {
    const eqfuse_model *model = &eqfuse_network;
    const void *inputs[EQFUSE_INPUTS];
    void *outputs[EQFUSE_OUTPUTS];
    eqfuse_context *context = eqfuse_create(model, EQFUSE_EMBEDDED_WEIGHTS, 1);
    char *request = malloc(MOST_HEADER + total_bytes(model->inputs, model->input_count));
    char *response = malloc(total_bytes(model->outputs, model->output_count));
    (void)unused;
    if (!context || !request || !response) {
        fprintf(stderr, "error: %s\n", eqfuse_message());
        exit(1);
    }
    size_t place = 0;
    for (int i = 0; i < EQFUSE_OUTPUTS; place += model->outputs[i++].bytes) outputs[i] = response + place;
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0) continue;
        struct timeval patience = {10, 0};
        setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        serve(connection, context, request, response, inputs, outputs);
        shutdown(connection, SHUT_WR);
        while (recv(connection, request, MOST_HEADER, 0) > 0) {} /* what is closed with bytes unread loses the answer */
        close(connection);
    }
    return NULL;
}

static void stop(int number) {
    (void)number;
    _exit(0);
}

int main(int count, char **arguments) {
    int port = count > 1 ? atoi(arguments[1]) : 8080, threads = count > 2 ? atoi(arguments[2]) : 4, yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_ANY)}};
    signal(SIGTERM, stop); /* a container's first process has no other handler */
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128)) {
        perror("error: cannot listen");
        return 1;
    }
    socklen_t size = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &size);
    fprintf(stderr, "serving on port %d with %d threads\n", ntohs(address.sin_port), threads);
    for (int i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL)) break;
    }
    work(NULL);
    return 0;
}
