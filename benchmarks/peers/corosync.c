/* A member on Corosync's closed process groups, for the bench: commands on stdin, answers on stdout.
 *
 * cpg_member NAME INDEX MEMBERS
 *
 * One thread does both halves, sending and dispatching: on a machine with fewer cores than members a
 * second one only adds wake-ups. When CPG says TRY_AGAIN its queue is full, and what empties the
 * queue is the delivery of our own messages: so we dispatch, then try the same message again.
 */
#define _GNU_SOURCE
#include <corosync/cpg.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 16, SAMPLES_MAX = 2000, DISPATCH_MAX = 256, BURST_MAX = 64, BURST_OCTETS = 65536 };
enum { DATA = 0, END = 1 };
#define SECOND 1000000000ull

static cpg_handle_t handle;
static int cpg_fd;
static uint32_t members_wanted;
static uint8_t me;
static bool digesting;
static bool ready; /* all members were here */
static char line[512]; /* the command that is being read */
static size_t line_length;
static bool over; /* stdin has ended, or we were told to quit */

/* The round that is being counted. */
static struct {
    bool on, probe;
    uint32_t round, senders, ends;
    uint64_t delivered, own, heard, first_ns, last_ns, stride, digest;
    uint32_t samples;
    double sample_us[SAMPLES_MAX];
} now;

static uint64_t clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static uint64_t time_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static void trouble(const char *what, int why) {
    printf("{\"trouble\": \"corosync: %s (%d)\"}\n", what, why);
    fflush(stdout);
}

static void put(uint8_t *to, uint64_t value, int octets) {
    while (octets--) to[octets] = (uint8_t)value, value >>= 8;
}

static uint64_t take(const uint8_t *from, int octets) {
    uint64_t value = 0;
    while (octets--) value = value << 8 | *from++;
    return value;
}

/* Payload: kind, round (4), stamp (8), who sent it (1), filler. */
static void head(uint8_t *payload, uint8_t kind, uint32_t round, uint64_t stamp) {
    payload[0] = kind;
    put(payload + 1, round, 4);
    put(payload + 5, stamp, 8);
    payload[13] = me;
}

static void delivered(cpg_handle_t h, const struct cpg_name *group, uint32_t node, uint32_t pid,
                      void *message, size_t length) {
    const uint8_t *payload = message;
    (void)h, (void)group, (void)node, (void)pid;
    if (!now.on || length < HEAD || take(payload + 1, 4) != now.round) return;
    uint64_t at = time_ns();
    if (payload[0] == END) {
        now.ends++;
        return;
    }
    if (!now.delivered++) now.first_ns = at;
    now.last_ns = at;
    if (payload[13] == me)
        now.own++;
    else if (now.probe && now.heard++ % now.stride == 0 && now.samples < SAMPLES_MAX)
        now.sample_us[now.samples++] = (double)(at - take(payload + 5, 8)) / 1000.0;
    if (digesting)
        for (int i = 5; i < HEAD; i++) now.digest = (now.digest ^ payload[i]) * 1099511628211ull;
}

static void changed(cpg_handle_t h, const struct cpg_name *group, const struct cpg_address *members,
                    size_t member_count, const struct cpg_address *left, size_t left_count,
                    const struct cpg_address *joined, size_t joined_count) {
    (void)h, (void)group, (void)members, (void)left, (void)joined, (void)joined_count;
    if (!ready && member_count == members_wanted) {
        ready = true;
        printf("{\"ready\": true}\n");
        fflush(stdout);
    } else if (ready && left_count && now.on) {
        trouble("a member left the group in the middle of a round", (int)left_count);
    }
}

/* What has come, a bounded part of it; says whether there was anything. */
static bool dispatched(void) {
    for (int i = 0; i < DISPATCH_MAX; i++) {
        cs_error_t why = cpg_dispatch(handle, CS_DISPATCH_ONE_NONBLOCKING);
        if (why == CS_ERR_TRY_AGAIN) return i > 0;
        if (why != CS_OK) {
            trouble("the daemon is gone", why);
            exit(1);
        }
    }
    return true;
}

/* Sleep until something comes from the group, at most until then. */
static void wait_ns(uint64_t until) {
    struct pollfd on = {.fd = cpg_fd, .events = POLLIN};
    uint64_t at = time_ns(), left = until > at ? until - at : 0;
    struct timespec t = {(time_t)(left / SECOND), (long)(left % SECOND)};
    ppoll(&on, 1, &t, NULL);
}

static void dispatch_until(uint64_t until) {
    while (time_ns() < until)
        if (!dispatched()) wait_ns(until);
}

/* Whether CPG took it; when its queue is full it takes nothing. */
static bool said(uint8_t *payload, size_t length) {
    struct iovec part = {payload, length};
    cs_error_t why = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &part, 1);
    if (why == CS_OK) return true;
    if (why == CS_ERR_TRY_AGAIN) return false;
    trouble("a message was refused", why);
    exit(1);
}

static void say(uint8_t *payload, size_t length) {
    while (!said(payload, length))
        if (!dispatched()) wait_ns(time_ns() + SECOND / 1000);
}

static uint64_t send_at_once(uint8_t *payload, size_t size, uint64_t end) {
    uint64_t sent = 0;
    size_t burst = BURST_OCTETS / size + 1 < BURST_MAX ? BURST_OCTETS / size + 1 : BURST_MAX;
    while (time_ns() < end) {
        bool full = false;
        for (size_t i = 0; i < burst && !full; i++) {
            head(payload, DATA, now.round, sent);
            if (said(payload, size)) sent++;
            else full = true;
        }
        if (!dispatched() && full) wait_ns(time_ns() + SECOND / 1000);
    }
    return sent;
}

/* Evenly, each when it is due; above a thousand a second those of a millisecond together. What could
 * not be said in time, because there is no room, is not made up for. */
static uint64_t send_evenly(uint8_t *payload, size_t size, uint64_t begin, uint64_t end, double rate) {
    uint64_t sent = 0;
    double step = rate > 1000 ? SECOND / 1000.0 : SECOND / rate;
    for (uint64_t turn = 0;; turn++) {
        uint64_t due = begin + (uint64_t)(step * (double)turn);
        if (due >= end || time_ns() >= end) return sent;
        dispatch_until(due);
        uint64_t upto = (uint64_t)((double)(turn + 1) * step * rate / (double)SECOND + 1e-6);
        for (; sent < upto && time_ns() < end; sent++) {
            head(payload, DATA, now.round, time_ns());
            say(payload, size);
        }
    }
}

static void answer(uint64_t sent, uint64_t cpu_ns) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("{\"did\": \"%s\", \"round\": %u, \"cpu_ns\": %" PRIu64 ", ", now.probe ? "probe" : "load",
           now.round, cpu_ns);
    if (now.probe) {
        printf("\"count\": %" PRIu64 ", \"samples_us\": [", now.heard);
        for (uint32_t i = 0; i < now.samples; i++)
            printf("%s%.1f", i ? ", " : "", now.sample_us[i]);
        printf("]");
    } else {
        printf("\"sent\": %" PRIu64 ", \"delivered\": %" PRIu64 ", \"first_ns\": %" PRIu64
               ", \"last_ns\": %" PRIu64 ", \"rss_kb\": %ld",
               sent, now.delivered, now.first_ns, now.last_ns, use.ru_maxrss);
    }
    if (digesting) printf(", \"digest\": \"%016" PRIx64 "\"", now.digest);
    printf("}\n");
    fflush(stdout);
}

static void obey(char *command) {
    char what[16];
    uint32_t round, sends, senders;
    uint64_t begin;
    double seconds, rate = 0;
    size_t size;
    if (sscanf(command, "%15s", what) != 1) return;
    if (!strcmp(what, "quit")) {
        over = true;
        return;
    }
    bool probe = !strcmp(what, "probe");
    int words = probe ? sscanf(command, "%*s %u %" SCNu64 " %lf %zu %lf %u %u", &round, &begin, &seconds,
                               &size, &rate, &sends, &senders)
                      : sscanf(command, "%*s %u %" SCNu64 " %lf %zu %u %u", &round, &begin, &seconds,
                               &size, &sends, &senders);
    if (words != (probe ? 7 : 6) || size < HEAD || (probe && rate <= 0)) {
        trouble("not a command", words);
        return;
    }
    uint8_t *payload = calloc(1, size);
    if (!payload) {
        trouble("no memory for a message", ENOMEM);
        exit(1);
    }
    uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), end = begin + (uint64_t)(seconds * SECOND);
    memset(&now, 0, sizeof now);
    now.on = true, now.probe = probe, now.round = round, now.senders = senders;
    double expected = rate * seconds * (senders - (sends ? 1 : 0));
    now.stride = expected > SAMPLES_MAX ? (uint64_t)(expected / SAMPLES_MAX) + 1 : 1;
    now.digest = 14695981039346656037ull;
    dispatch_until(begin);
    uint64_t sent = 0;
    if (sends) {
        sent = probe ? send_evenly(payload, size, begin, end, rate) : send_at_once(payload, size, end);
        head(payload, END, round, sent);
        say(payload, HEAD);
    }
    while (now.ends < senders)
        if (!dispatched()) wait_ns(time_ns() + SECOND / 10);
    now.on = false;
    answer(sent, clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    free(payload);
}

static void read_commands(void) {
    ssize_t got = read(0, line + line_length, sizeof line - 1 - line_length);
    if (got <= 0) {
        over = true;
        return;
    }
    line_length += (size_t)got;
    line[line_length] = 0;
    for (char *end; !over && (end = strchr(line, '\n'));) {
        *end = 0;
        obey(line);
        line_length -= (size_t)(end + 1 - line);
        memmove(line, end + 1, line_length + 1);
    }
}

static void connect_to_daemon(void) {
    cpg_model_v1_data_t model = {
        .model = CPG_MODEL_V1, .cpg_deliver_fn = delivered, .cpg_confchg_fn = changed};
    uint64_t until = time_ns() + 30 * SECOND;
    cs_error_t why;
    while ((why = cpg_model_initialize(&handle, CPG_MODEL_V1, (cpg_model_data_t *)&model, NULL)) != CS_OK) {
        if (time_ns() > until) {
            trouble("no daemon to talk to", why);
            exit(1);
        }
        usleep(50000);
    }
    cpg_fd_get(handle, &cpg_fd);
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: %s GROUP INDEX MEMBERS\n", words[0]);
        return 2;
    }
    me = (uint8_t)atoi(words[2]);
    members_wanted = (uint32_t)atoi(words[3]);
    digesting = getenv("UNISONO_BENCH_DIGEST") != NULL;
    connect_to_daemon();
    struct cpg_name group = {.length = (uint32_t)strlen(words[1])};
    memcpy(group.value, words[1], group.length);
    cs_error_t why;
    while ((why = cpg_join(handle, &group)) == CS_ERR_TRY_AGAIN) usleep(10000);
    if (why != CS_OK) {
        trouble("the group did not let us in", why);
        return 1;
    }
    struct pollfd on[2] = {{.fd = 0, .events = POLLIN}, {.fd = cpg_fd, .events = POLLIN}};
    while (!over) {
        /* Others may have read their commands before us: what they say waits until we have ours, and
         * only the end of the daemon wakes us. */
        on[1].events = ready ? 0 : POLLIN;
        poll(on, 2, -1);
        if (on[1].revents) dispatched();
        if (on[0].revents) read_commands();
    }
    cpg_finalize(handle);
    return 0;
}
