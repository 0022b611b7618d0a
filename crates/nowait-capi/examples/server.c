/* A file server of one thread: HTTP/1.1 with GET, HEAD and single ranges, for the files of one directory.
 *
 *   epoll ─► request ─► NW_OP_OPENAT ─► header ─► NW_OP_READ ─► send ─┐
 *     ▲                     │                         ▲ │             │ the next block
 *     └──── the eventfd of the engine ────────────────┘ └─────────────┘
 *
 * A read of cached data is done when nw_submit returns. Every other read, and each open, is in flight while the thread
 * serves other connections, so a disk that stalls delays only those who wait for it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <nowait.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 64 << 10, REQUEST = 4096 };

enum state {
    READING, /* the request is not complete */
    OPENING, /* NW_OP_OPENAT is in flight */
    LOADING, /* NW_OP_READ is in flight */
    SENDING, /* the socket takes no more */
    CLOSING, /* the client has gone, and an operation is in flight */
};

struct connection {
    enum state state;
    int socket, fd;
    struct nw_file *file;
    char request[REQUEST], *path;
    size_t received, taken; /* bytes of the request; bytes that belong to it */
    int is_head, keep;
    uint64_t first, last; /* the range; UINT64_MAX where the client named no number */
    int has_range;
    uint64_t offset, end; /* what is left of the file */
    char *out;            /* header or block */
    size_t out_len, out_sent;
};

static struct nw_engine *engine;
static int loop, root;

static void go_on(struct connection *c);

static void finish(struct connection *c)
{
    if (c->file != NULL)
        nw_file_close(c->file);
    if (c->fd >= 0)
        close(c->fd);
    c->file = NULL;
    c->fd = -1;
}

static void drop(struct connection *c)
{
    if (c->socket >= 0)
        close(c->socket);
    c->socket = -1;
    if (c->state == OPENING || c->state == LOADING) {
        /* The engine has the buffer until the completion. */
        c->state = CLOSING;
        return;
    }
    finish(c);
    free(c->out);
    free(c);
}

static void watch(struct connection *c, uint32_t events)
{
    struct epoll_event event = {.events = events | EPOLLRDHUP, .data.ptr = c};
    epoll_ctl(loop, EPOLL_CTL_MOD, c->socket, &event);
}

/* Submits an operation of a connection. Returns 1 if it is done. */
static int submit(struct connection *c, const struct nw_op *op, enum state state, int64_t *result)
{
    struct nw_completion done;
    int said = nw_submit(engine, op, &done);
    if (said == NW_QUEUED) {
        c->state = state;
        watch(c, 0);
        return 0;
    }
    *result = said == NW_DONE ? done.result : said == NW_FULL ? -EAGAIN : said;
    return 1;
}

static void answer(struct connection *c, const char *status, uint64_t length, const char *more)
{
    c->out_len = (size_t)snprintf(c->out, BLOCK, "HTTP/1.1 %s\r\nContent-Length: %llu\r\n%s%s\r\n", status,
                                  (unsigned long long)length, more, c->keep ? "" : "Connection: close\r\n");
    c->out_sent = 0;
    c->state = SENDING;
}

static void opened(struct connection *c, int64_t fd)
{
    struct stat stat;
    char more[200] = "Accept-Ranges: bytes\r\n";
    c->offset = c->end = 0;
    if (fd < 0) {
        const char *status = fd == -EAGAIN ? "503 Service Unavailable" : fd == -EACCES ? "403 Forbidden" : "404 Not Found";
        answer(c, status, 0, "");
        return;
    }
    c->fd = (int)fd;
    if (fstat(c->fd, &stat) != 0 || !S_ISREG(stat.st_mode) || nw_file_open(c->fd, &c->file) < 0) {
        answer(c, "404 Not Found", 0, "");
        return;
    }
    uint64_t size = (uint64_t)stat.st_size, first = 0, end = size;
    if (c->has_range) {
        if (c->first == UINT64_MAX) { /* the last bytes */
            first = c->last < size ? size - c->last : 0;
        } else {
            first = c->first;
            end = c->last < size ? c->last + 1 : size;
        }
        if (first >= end || first >= size) {
            snprintf(more, sizeof more, "Content-Range: bytes */%llu\r\n", (unsigned long long)size);
            answer(c, "416 Range Not Satisfiable", 0, more);
            return;
        }
        snprintf(more, sizeof more, "Accept-Ranges: bytes\r\nContent-Range: bytes %llu-%llu/%llu\r\n",
                 (unsigned long long)first, (unsigned long long)end - 1, (unsigned long long)size);
    }
    answer(c, c->has_range ? "206 Partial Content" : "200 OK", end - first, more);
    if (!c->is_head) {
        c->offset = first;
        c->end = end;
    }
}

static void loaded(struct connection *c, int64_t n)
{
    if (n <= 0) {
        /* The header has promised more bytes: only the end of the connection tells the client. */
        c->keep = 0;
        c->offset = c->end;
        n = 0;
    }
    c->offset += (uint64_t)n;
    c->out_len = (size_t)n;
    c->out_sent = 0;
    c->state = SENDING;
}

/* Parses a request that is complete. */
static void parse(struct connection *c, char *end)
{
    char *line, *rest = c->request, version;
    *end = 0;
    c->taken = (size_t)(end + 4 - c->request);
    c->has_range = 0;
    line = strsep(&rest, "\n");
    c->path = strchr(line, ' ');
    char *http = c->path ? strstr(c->path + 1, " HTTP/1.") : NULL;
    c->is_head = strncmp(line, "HEAD ", 5) == 0;
    if (http == NULL || (!c->is_head && strncmp(line, "GET ", 4) != 0)) {
        c->keep = 0;
        answer(c, "400 Bad Request", 0, "");
        return;
    }
    version = http[8];
    *http = 0;
    c->path += strspn(c->path, " /");
    c->keep = version == '1';
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (strncasecmp(line, "Connection: close", 17) == 0)
            c->keep = 0;
        if (strncasecmp(line, "Range: bytes=", 13) == 0 && strchr(line, ',') == NULL) {
            char *number = line + 13, *after;
            c->first = *number == '-' ? UINT64_MAX : strtoull(number, &after, 10);
            number = strchr(number, '-');
            c->last = number && number[1] >= '0' && number[1] <= '9' ? strtoull(number + 1, &after, 10) : UINT64_MAX;
            c->has_range = number != NULL && (c->first != UINT64_MAX || c->last != UINT64_MAX);
        }
    }
    if (strstr(c->path, "..") != NULL || *c->path == 0) {
        answer(c, "404 Not Found", 0, "");
        return;
    }
    struct nw_op op = {.opcode = NW_OP_OPENAT, .addr = c->path, .flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK,
                       .user_data = (uint64_t)(uintptr_t)c};
    int64_t fd;
    if (submit(c, &op, OPENING, &fd))
        opened(c, fd);
}

/* Does everything that is possible without waiting. */
static void go_on(struct connection *c)
{
    for (;;) {
        if (c->state == OPENING || c->state == LOADING)
            return;
        if (c->state == READING) {
            c->request[c->received] = 0;
            char *end = strstr(c->request, "\r\n\r\n");
            if (end != NULL) {
                parse(c, end);
                continue;
            }
            ssize_t n = recv(c->socket, c->request + c->received, REQUEST - 1 - c->received, 0);
            if (n < 0 && errno == EAGAIN) {
                watch(c, EPOLLIN);
                return;
            }
            if (n <= 0) {
                drop(c);
                return;
            }
            c->received += (size_t)n;
            continue;
        }
        if (c->out_sent < c->out_len) {
            ssize_t n = send(c->socket, c->out + c->out_sent, c->out_len - c->out_sent,
                             MSG_NOSIGNAL | (c->offset < c->end ? MSG_MORE : 0));
            if (n < 0 && errno == EAGAIN) {
                watch(c, EPOLLOUT);
                return;
            }
            if (n < 0) {
                drop(c);
                return;
            }
            c->out_sent += (size_t)n;
            continue;
        }
        if (c->offset < c->end) {
            uint64_t left = c->end - c->offset;
            struct nw_op op = {.opcode = NW_OP_READ, .file = c->file, .addr = c->out, .offset = c->offset,
                               .len = left < BLOCK ? left : BLOCK, .user_data = (uint64_t)(uintptr_t)c};
            int64_t n;
            if (submit(c, &op, LOADING, &n))
                loaded(c, n);
            continue;
        }
        finish(c);
        if (!c->keep) {
            drop(c);
            return;
        }
        memmove(c->request, c->request + c->taken, c->received - c->taken);
        c->received -= c->taken;
        c->state = READING;
    }
}

/* Takes the completions of the engine. */
static void reap(void)
{
    struct nw_completion done[64];
    int n;
    do {
        n = nw_reap(engine, done, 64, 0, NULL);
        for (int i = 0; i < n; i++) {
            struct connection *c = (struct connection *)(uintptr_t)done[i].user_data;
            if (c->state == CLOSING) {
                if (done[i].result >= 0 && c->fd < 0)
                    c->fd = (int)done[i].result;
                drop(c);
                continue;
            }
            if (c->state == OPENING)
                opened(c, done[i].result);
            else
                loaded(c, done[i].result);
            go_on(c);
        }
    } while (n == 64);
}

static void accept_all(int listener)
{
    int socket;
    while ((socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct connection *c = calloc(1, sizeof *c);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        if (c == NULL || (c->out = malloc(BLOCK)) == NULL) {
            free(c);
            close(socket);
            continue;
        }
        c->socket = socket;
        c->fd = -1;
        epoll_ctl(loop, EPOLL_CTL_ADD, socket, &event);
        go_on(c);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (argc < 2) {
        fprintf(stderr, "usage: server DIRECTORY [PORT]\n");
        return 2;
    }
    if ((root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 || fchdir(root) != 0) {
        perror(argv[1]);
        return 1;
    }
    address.sin_port = htons((uint16_t)(argc > 2 ? atoi(argv[2]) : 0));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1024) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
        perror("listen");
        return 1;
    }
    struct nw_engine_options options = {.size = sizeof options, .flags = NW_ENGINE_LOCAL};
    int said = nw_engine_create(&options, &engine);
    if (said < 0) {
        fprintf(stderr, "nw_engine_create: %s\n", nw_strerror(said));
        return 1;
    }
    /* The addresses of these mark the listener and the engine among the events. */
    static char listener_mark, engine_mark;
    struct epoll_event events[64], event = {.events = EPOLLIN, .data.ptr = &listener_mark};
    loop = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(loop, EPOLL_CTL_ADD, listener, &event);
    event.data.ptr = &engine_mark;
    epoll_ctl(loop, EPOLL_CTL_ADD, nw_engine_event_fd(engine), &event);
    printf("http://127.0.0.1:%d/ serves %s\n", ntohs(address.sin_port), argv[1]);
    fflush(stdout);
    for (;;) {
        int n = epoll_wait(loop, events, 64, -1);
        /* The engine comes last: a completion may free a connection that has an event as well. */
        int has_completions = 0;
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == &listener_mark) {
                accept_all(listener);
            } else if (events[i].data.ptr == &engine_mark) {
                has_completions = 1;
            } else {
                struct connection *c = events[i].data.ptr;
                if (events[i].events & (EPOLLERR | EPOLLHUP))
                    drop(c);
                else if (c->state == READING || c->state == SENDING)
                    go_on(c);
                else if (events[i].events & EPOLLRDHUP)
                    drop(c);
            }
        }
        if (has_completions)
            reap();
    }
}
