/* Load for an SMB server: cached reads beside uncached ones, on one connection.
 *
 * A client of SMB 2.1 with one thread, with what the measurement needs: NTLMv2, signatures, credits. Each block of a file
 * begins and ends with its position, which is checked in each answer. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <nettle/hmac.h>
#include <nettle/md4.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { NEGOTIATE = 0, SESSION_SETUP = 1, TREE_CONNECT = 3, CREATE = 5, READ = 8, ECHO = 13 };
enum { HEADER = 64, MAX_MESSAGE = 9 << 20, MAX_HITS = 1 << 22, MAX_IN_FLIGHT = 4096 };
#define STATUS_PENDING 0x103
#define STATUS_MORE 0xC0000016
#define FLAG_SIGNED 8

static struct {
    int fd;
    bool sign;
    uint64_t message, session;
    uint32_t tree;
    uint8_t key[16];
    int credits;
    uint8_t *out, *in;
    size_t have, at; /* bytes in `in`, and the first one that is not parsed */
} c;

static void fail(const char *what, uint32_t status)
{
    fprintf(stderr, "load: %s: %#x %s\n", what, status, errno ? strerror(errno) : "");
    exit(1);
}

static void put16(uint8_t *p, uint16_t v) { memcpy(p, &v, 2); }
static void put32(uint8_t *p, uint32_t v) { memcpy(p, &v, 4); }
static void put64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }
static uint16_t get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return v; }
static uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static uint64_t get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static size_t utf16(uint8_t *to, const char *from)
{
    size_t n = 0;
    for (; *from; from++, n += 2) {
        to[n] = (uint8_t)*from;
        to[n + 1] = 0;
    }
    return n;
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void signature(const uint8_t *message, size_t len, uint8_t result[16])
{
    static const uint8_t zeros[16];
    struct hmac_sha256_ctx hmac;
    hmac_sha256_set_key(&hmac, 16, c.key);
    hmac_sha256_update(&hmac, 48, message);
    hmac_sha256_update(&hmac, 16, zeros);
    hmac_sha256_update(&hmac, len - HEADER, message + HEADER);
    hmac_sha256_digest(&hmac, 16, result);
}

/* Sends a message, whose body is in c.out after the header. `charge` is its number of credits. Returns its number. */
static uint64_t send_message(uint16_t command, size_t body, uint16_t charge, bool sign)
{
    uint8_t *h = c.out + 4;
    size_t len = HEADER + body, done = 0;
    uint64_t number = c.message;
    memset(h, 0, HEADER);
    memcpy(h, "\xfeSMB", 4);
    put16(h + 4, HEADER);
    put16(h + 6, charge);
    put16(h + 12, command);
    put16(h + 14, command == READ ? charge : 512);
    put32(h + 16, sign ? FLAG_SIGNED : 0);
    put64(h + 24, number);
    put32(h + 36, c.tree);
    put64(h + 40, c.session);
    if (sign)
        signature(h, len, h + 48);
    put32(c.out, htonl((uint32_t)len));
    c.message += charge;
    c.credits -= charge;
    while (done < len + 4) {
        ssize_t n = send(c.fd, c.out + done, len + 4 - done, 0);
        if (n <= 0)
            fail("send", 0);
        done += (size_t)n;
    }
    return number;
}

/* Waits for an answer that is not an interim one. */
static uint8_t *receive(size_t *len, bool check)
{
    for (;;) {
        uint8_t *h = c.in + c.at + 4;
        size_t need = c.have - c.at < 4 ? 4 : 4 + (ntohl(get32(c.in + c.at)) & 0xffffff);
        if (c.have - c.at >= need && need > 4) {
            uint8_t expected[16];
            *len = need - 4;
            c.at += need;
            c.credits += get16(h + 14);
            if (get32(h + 8) == STATUS_PENDING)
                continue;
            if (check) {
                signature(h, *len, expected);
                if (memcmp(expected, h + 48, 16) != 0)
                    fail("a wrong signature", 0);
            }
            return h;
        }
        if (c.at == c.have)
            c.at = c.have = 0;
        if (c.at + need > MAX_MESSAGE || (need > 4 && c.at > MAX_MESSAGE / 2)) {
            memmove(c.in, c.in + c.at, c.have - c.at);
            c.have -= c.at;
            c.at = 0;
        }
        ssize_t n = recv(c.fd, c.in + c.have, MAX_MESSAGE - c.have, 0);
        if (n <= 0)
            fail("the server has closed the connection", 0);
        c.have += (size_t)n;
    }
}

/* Sends a request and returns the body of its answer. */
static uint8_t *call(const char *what, uint16_t command, size_t body, uint32_t expected)
{
    size_t len;
    bool sign = c.sign && command != NEGOTIATE && command != SESSION_SETUP;
    send_message(command, body, 1, sign);
    uint8_t *h = receive(&len, sign);
    if (get32(h + 8) != expected)
        fail(what, get32(h + 8));
    c.session = get64(h + 40);
    if (command == TREE_CONNECT)
        c.tree = get32(h + 36);
    return h + HEADER;
}

static uint8_t *new_body(size_t len)
{
    memset(c.out + 4 + HEADER, 0, len);
    return c.out + 4 + HEADER;
}

static uint8_t *session_setup(const uint8_t *blob, size_t len, uint32_t expected)
{
    uint8_t *b = new_body(24);
    put16(b, 25);
    b[3] = c.sign ? 3 : 1;
    put16(b + 12, HEADER + 24);
    put16(b + 14, (uint16_t)len);
    memcpy(b + 24, blob, len);
    return call("session setup", SESSION_SETUP, 24 + len, expected);
}

/* The answer to the server's challenge: NTLMv2. Sets the key of the session. */
static size_t authenticate(uint8_t *to, const uint8_t *challenge, const char *user, const char *password)
{
    static const uint8_t flags[4] = {0x15, 0x82, 0x08, 0xa0};
    uint8_t hash[16], response_key[16], text[512], temp[1024];
    const uint8_t *info = challenge + get32(challenge + 44);
    size_t info_len = get16(challenge + 40), n, temp_len, user_len, at = 64;
    struct md4_ctx md4;
    struct hmac_md5_ctx hmac;

    n = utf16(text, password);
    md4_init(&md4);
    md4_update(&md4, n, text);
    md4_digest(&md4, 16, hash);
    n = utf16(text, user);
    for (size_t i = 0; i < n; i++)
        if (text[i] >= 'a' && text[i] <= 'z')
            text[i] -= 32;
    hmac_md5_set_key(&hmac, 16, hash);
    hmac_md5_update(&hmac, n, text);
    hmac_md5_digest(&hmac, 16, response_key);

    memset(temp, 0, 28);
    temp[0] = temp[1] = 1;
    /* The time is that of the server, and the challenge of the client is a constant: this is no secret. */
    for (const uint8_t *p = info; p + 4 <= info + info_len && get16(p) != 0; p += 4 + get16(p + 2))
        if (get16(p) == 7)
            memcpy(temp + 8, p + 4, 8);
    memcpy(temp + 16, "nowaitld", 8);
    memcpy(temp + 28, info, info_len);
    memset(temp + 28 + info_len, 0, 4);
    temp_len = 32 + info_len;

    memset(to, 0, 64);
    memcpy(to, "NTLMSSP", 8);
    put32(to + 8, 3);
    put16(to + 12, 24), put16(to + 14, 24), put32(to + 16, (uint32_t)at);
    memset(to + at, 0, 24);
    at += 24;
    hmac_md5_set_key(&hmac, 16, response_key);
    hmac_md5_update(&hmac, 8, challenge + 24);
    hmac_md5_update(&hmac, temp_len, temp);
    hmac_md5_digest(&hmac, 16, to + at);
    hmac_md5_set_key(&hmac, 16, response_key);
    hmac_md5_update(&hmac, 16, to + at);
    hmac_md5_digest(&hmac, 16, c.key);
    memcpy(to + at + 16, temp, temp_len);
    put16(to + 20, (uint16_t)(16 + temp_len)), put16(to + 22, (uint16_t)(16 + temp_len)), put32(to + 24, (uint32_t)at);
    at += 16 + temp_len;
    put32(to + 32, (uint32_t)at);
    user_len = utf16(to + at, user);
    put16(to + 36, (uint16_t)user_len), put16(to + 38, (uint16_t)user_len), put32(to + 40, (uint32_t)at);
    at += user_len;
    put32(to + 48, (uint32_t)at), put32(to + 56, (uint32_t)at);
    memcpy(to + 60, flags, 4);
    return at;
}

static void connect_to(int port, const char *share, const char *user, const char *password)
{
    static const uint8_t negotiate[32] = "NTLMSSP\0\1\0\0\0\x15\x82\x08\xa0";
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    uint8_t *b, blob[2048];
    char path[256];
    int on = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(c.fd, (struct sockaddr *)&to, sizeof to) < 0)
        fail("connect", 0);
    setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c.out = calloc(1, 1 << 16);
    c.in = calloc(1, MAX_MESSAGE);

    b = new_body(38);
    put16(b, 36);
    put16(b + 2, 1);
    put16(b + 4, c.sign ? 3 : 1);
    put32(b + 8, 4);
    /* Connections of one client identifier share a process of the server. */
    put64(b + 12, (uint64_t)getpid());
    put64(b + 20, now());
    put16(b + 36, 0x0210);
    c.credits = 1;
    call("negotiate", NEGOTIATE, 38, 0);
    b = session_setup(negotiate, sizeof negotiate, STATUS_MORE);
    size_t len = authenticate(blob, b - HEADER + get16(b + 4), user, password);
    session_setup(blob, len, 0);

    snprintf(path, sizeof path, "\\\\127.0.0.1\\%s", share);
    b = new_body(8);
    put16(b, 9);
    put16(b + 4, HEADER + 8);
    len = utf16(b + 8, path);
    put16(b + 6, (uint16_t)len);
    call("tree connect", TREE_CONNECT, 8 + len, 0);
}

static void wait_for_credits(int count)
{
    while (c.credits < count) {
        put16(new_body(4), 4);
        call("echo", ECHO, 4, 0);
    }
}

struct file {
    uint8_t id[16];
    uint64_t size;
};

static struct file open_file(const char *name)
{
    struct file file;
    uint8_t *b = new_body(56);
    size_t len;
    put16(b, 57);
    put32(b + 4, 2);
    put32(b + 24, 0x00120089); /* FILE_GENERIC_READ */
    put32(b + 32, 7);
    put32(b + 36, 1);
    put16(b + 44, HEADER + 56);
    len = utf16(b + 56, name);
    put16(b + 46, (uint16_t)len);
    b = call(name, CREATE, 56 + len, 0);
    memcpy(file.id, b + 64, 16);
    file.size = get64(b + 48);
    return file;
}

/* What is in flight: the offset, the time and the kind of each read, at its message number modulo the room. */
static struct { uint64_t number, offset, begun; bool cold, used; } reads[MAX_IN_FLIGHT];

static void begin(const struct file *file, uint64_t offset, uint32_t len, bool cold)
{
    uint8_t *b = new_body(49);
    put16(b, 49);
    b[2] = HEADER + 16;
    put32(b + 4, len);
    put64(b + 8, offset);
    memcpy(b + 16, file->id, 16);
    unsigned at = 0;
    while (reads[at].used)
        at++;
    reads[at].used = true;
    reads[at].offset = offset;
    reads[at].cold = cold;
    reads[at].begun = now();
    reads[at].number = send_message(READ, 49, (uint16_t)(1 + (len - 1) / 65536), c.sign);
}

static uint64_t state = 88172645463325252u;
static uint64_t randomly(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The process that serves the connection is the newest child of the server. The kernel lists children by their age. */
static int server_process(int parent)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
    FILE *file = fopen(path, "r");
    int pid = 0, child;
    while (file != NULL && fscanf(file, "%d", &child) == 1)
        pid = child;
    if (file != NULL)
        fclose(file);
    return pid;
}

/* The processor time of all threads of a process, in microseconds. */
static uint64_t processor_us(int pid)
{
    char path[64], text[1024];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(text, sizeof text, file) == NULL)
        return 0;
    fclose(file);
    sscanf(strrchr(text, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (user + system) * 1000000u / (uint64_t)sysconf(_SC_CLK_TCK);
}

int main(int argc, char **argv)
{
    int option, port = 445, parent = 0, hot_depth = 0, cold_depth = 0, wrong = 0;
    uint32_t hot_len = 4096, cold_len = 4096;
    double seconds = 2;
    const char *share = NULL, *hot_name = "hot", *cold_name = "cold", *user = "", *password = "";
    while ((option = getopt(argc, argv, "p:s:u:w:h:n:H:c:N:C:t:P:S")) != -1)
        switch (option) {
        case 'p': port = atoi(optarg); break;
        case 's': share = optarg; break;
        case 'u': user = optarg; break;
        case 'w': password = optarg; break;
        case 'h': hot_name = optarg; break;
        case 'n': hot_depth = atoi(optarg); break;
        case 'H': hot_len = (uint32_t)atoi(optarg); break;
        case 'c': cold_name = optarg; break;
        case 'N': cold_depth = atoi(optarg); break;
        case 'C': cold_len = (uint32_t)atoi(optarg); break;
        case 't': seconds = atof(optarg); break;
        case 'P': parent = atoi(optarg); break;
        case 'S': c.sign = true; break;
        default: share = NULL; optind = argc;
        }
    if (share == NULL || hot_depth + cold_depth == 0 || hot_depth + cold_depth > MAX_IN_FLIGHT) {
        fprintf(stderr, "usage: load -p PORT -s SHARE -u USER -w PASSWORD [-S] [-P PID] [-t SECONDS]\n"
                        "            [-h HOT -n IN_FLIGHT -H BYTES] [-c COLD -N IN_FLIGHT -C BYTES]\n"
                        "  -S  sign      -P  the server, of whose child the processor time is measured\n");
        return 2;
    }
    connect_to(port, share, user, password);
    int server = parent ? server_process(parent) : 0;
    struct file hot = {.size = 0}, cold = {.size = 0};
    if (hot_depth)
        hot = open_file(hot_name);
    if (cold_depth)
        cold = open_file(cold_name);
    wait_for_credits(hot_depth * (int)(1 + (hot_len - 1) / 65536) + cold_depth * (int)(1 + (cold_len - 1) / 65536));

    uint32_t *taken = malloc(MAX_HITS * sizeof *taken);
    uint64_t hits = 0, colds = 0;
    /* Each cold block is read once: an odd step visits each position of a power of two. */
    uint64_t blocks = 1, position = 0;
    while (cold_depth && blocks * 2 * cold_len <= cold.size)
        blocks *= 2;
    uint64_t step = 0x9e3779b97f4a7c15u | 1;
    state ^= now();

    uint64_t processor = processor_us(server), begun = now(), end = begun + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < cold_depth; i++, position += step)
        begin(&cold, position % blocks * cold_len, cold_len, true);
    for (int i = 0; i < hot_depth; i++)
        begin(&hot, randomly() % (hot.size / hot_len) * hot_len, hot_len, false);
    uint64_t last = begun, in_flight = (uint64_t)(hot_depth + cold_depth);
    while (in_flight > 0) {
        size_t len;
        uint8_t *h = receive(&len, c.sign);
        uint64_t number = get64(h + 24);
        unsigned at = 0;
        while (!reads[at].used || reads[at].number != number)
            if (++at == MAX_IN_FLIGHT)
                fail("an answer to nothing", get32(h + 8));
        if (get32(h + 8) != 0)
            fail("read", get32(h + 8));
        bool is_cold = reads[at].cold;
        uint32_t size = is_cold ? cold_len : hot_len;
        const uint8_t *data = h + h[HEADER + 2];
        if (get32(h + HEADER + 4) != size || get64(data) != reads[at].offset ||
            get64(data + size - 4096) != reads[at].offset + size - 4096 ||
            get64(data + size - 8) != reads[at].offset + size - 4096)
            wrong++;
        last = now();
        reads[at].used = false;
        in_flight--;
        if (is_cold)
            colds++;
        else if (hits < MAX_HITS)
            taken[hits++] = (uint32_t)(last - reads[at].begun);
        if (last >= end)
            continue;
        if (is_cold) {
            begin(&cold, position % blocks * cold_len, cold_len, true);
            position += step;
        } else {
            begin(&hot, randomly() % (hot.size / hot_len) * hot_len, hot_len, false);
        }
        in_flight++;
    }
    processor = processor_us(server) - processor;
    double took = (double)(last - begun) / 1e9;
    qsort(taken, hits, sizeof *taken, compare);
    printf("hits_per_s=%.0f p50_us=%.1f p99_us=%.1f max_us=%.1f cold_per_s=%.0f cold_all_read=%d cpu_us=%.2f wrong=%d\n",
           (double)hits / took, hits ? taken[hits / 2] / 1e3 : 0, hits ? taken[hits * 99 / 100] / 1e3 : 0,
           hits ? taken[hits - 1] / 1e3 : 0, (double)colds / took, cold_depth && colds > blocks,
           hits + colds ? (double)processor / (double)(hits + colds) : 0, wrong);
    return wrong != 0;
}
