/* Hosts in C: a gradient in, a job, the sum out, by UDP frames to each node's own card.
 *
 * gradnic twin --topology ring:2 --algorithm ring &          # or cards in machines
 * cc -O2 -o all_reduce examples/all_reduce.c
 * ./all_reduce 127.0.0.1:29440 127.0.0.1:29441               # the card of each node, in order
 *
 * One request is on its way at a time, and is sent again until its answer has come: simple, and a
 * tenth of what a window of requests reaches. Format: docs/spec/wire.md, HOST, and
 * docs/reference/jobs.md. All numbers are big-endian, but for floats, which are memory as it is.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_REG, WRITE_REG, READ, WRITE, DATA, ACK, EVENT, POST, HELLO };  /* kinds */
enum { HEAD = 22, PAYLOAD = 1408, DESCRIPTOR = 40, COMPLETION = 28, HELLO_BYTES = 64 };
enum { FULL = 5 };    /* a status */
enum { OURS = 0x4E }; /* first byte: VER 1, OP 14 */
enum { REGISTER_HOST = 0x29C };  /* bit 0: completions come as EVENTs */
enum { TRIES = 600, WAIT_MS = 100 };

struct card {
    int socket;
    uint32_t session, seq;   /* seq: of the next request */
    uint32_t events;         /* number of the next EVENT */
    unsigned job;            /* id */
    uint8_t completion[COMPLETION];
    int ended;               /* completion is the job's */
};

static void put(uint8_t *at, int n, uint64_t value)
{
    while (n--)
        at[n] = (uint8_t)value, value >>= 8;
}

static uint64_t get(const uint8_t *at, int n)
{
    uint64_t value = 0;
    while (n--)
        value = value << 8 | *at++;
    return value;
}

static void fail(const char *why)
{
    fprintf(stderr, "error: %s\n", why);
    exit(1);
}

static void say(struct card *card, int kind, uint32_t seq, uint64_t address, unsigned elems,
                const void *payload, unsigned n)
{
    uint8_t frame[HEAD + PAYLOAD] = {OURS};
    put(frame + 4, 6, address);
    put(frame + 11, 3, seq);
    put(frame + 14, 2, elems);
    frame[16] = (uint8_t)kind;
    put(frame + 18, 4, card->session);
    if (n)
        memcpy(frame + HEAD, payload, n);
    (void)!send(card->socket, frame, HEAD + n, 0);  /* one that is lost is sent again */
}

/* A frame of the card, its length; 0 if none comes. EVENTs are answered here. */
static int hear(struct card *card, uint8_t *frame, int milliseconds)
{
    struct pollfd wait = {card->socket, POLLIN, 0};
    if (poll(&wait, 1, milliseconds) <= 0)
        return 0;
    long n = recv(card->socket, frame, HEAD + PAYLOAD, 0);
    if (n < HEAD || frame[0] != OURS)
        return 0;
    if (frame[16] == EVENT && n >= HEAD + COMPLETION && get(frame + 18, 4) == card->session) {
        uint32_t number = (uint32_t)get(frame + 11, 3);
        if (number == card->events) {
            card->events++;
            if (get(frame + HEAD, 2) == card->job)  /* else of a host before, which has gone */
                memcpy(card->completion, frame + HEAD, COMPLETION), card->ended = 1;
        }
        if (number < card->events)
            say(card, ACK, number, 0, 0, NULL, 0);  /* it leaves the card's ring */
    }
    return (int)n;
}

/* A request, until it is done. READ: its bytes go to `into`. */
static void ask(struct card *card, int kind, uint64_t address, unsigned elems, const void *payload,
                unsigned n, void *into)
{
    uint8_t frame[HEAD + PAYLOAD];
    for (int tried = 0; tried < TRIES; tried++) {
        say(card, kind, card->seq, address, elems, payload, n);
        for (int length; (length = hear(card, frame, WAIT_MS));) {
            uint32_t seq = (uint32_t)get(frame + 11, 3);
            if (frame[16] == DATA && into && seq == card->seq && length >= (int)(HEAD + elems) &&
                get(frame + 18, 4) == card->session) {
                memcpy(into, frame + HEAD, elems);
                card->seq = (card->seq + 1) & 0xFFFFFF;
                return;
            }
            if (frame[16] != ACK)
                continue;
            if (frame[17] == FULL && seq == card->seq) {
                poll(NULL, 0, WAIT_MS);
                break;  /* of a POST: again */
            }
            if (frame[17])
                fail("the card refuses a request: docs/spec/wire.md has its status");
            if (get(frame + 18, 2) == ((card->seq + 1) & 0xFFFF)) {
                card->seq = (card->seq + 1) & 0xFFFFFF;
                if (!into)
                    return;
                break;  /* its DATA was lost: it is asked for anew */
            }
        }
    }
    fail("the card does not answer");
}

static void open_session(struct card *card, const char *end)
{
    char host[64];
    const char *colon = strrchr(end, ':');
    char *rest;
    struct sockaddr_in to = {0};
    if (!colon || colon - end >= (long)sizeof host)
        fail("a card must be given as ADDRESS:PORT");
    memcpy(host, end, (size_t)(colon - end)), host[colon - end] = 0;
    to.sin_family = AF_INET;
    long port = strtol(colon + 1, &rest, 10);
    if (*rest || port < 1 || port > 65535)
        fail("a port must be 1 to 65535");
    to.sin_port = htons((uint16_t)port);
    if (!inet_aton(host, &to.sin_addr))
        fail("a card must be given as ADDRESS:PORT");
    card->socket = socket(AF_INET, SOCK_DGRAM, 0);
    if (card->socket < 0 || connect(card->socket, (struct sockaddr *)&to, sizeof to))
        fail("no socket");
    card->session = (uint32_t)time(NULL) ^ (uint32_t)getpid() << 16 ^ ntohs(to.sin_port);
    card->seq = 1, card->events = 0, card->ended = 0;
    card->job = (unsigned)getpid() & 0xFFFF;
    uint8_t frame[HEAD + PAYLOAD];
    for (int tried = 0; tried < TRIES; tried++) {
        say(card, HELLO, 0, 0, PAYLOAD, NULL, 0);
        for (int length; (length = hear(card, frame, WAIT_MS));)
            if (frame[16] == HELLO && length >= HEAD + HELLO_BYTES &&
                get(frame + 18, 4) == card->session) {
                const uint8_t *hello = frame + HEAD;
                printf("%s: beats of %u bytes, %u port%s, %llu bytes of memory from %#llx on\n", end,
                       hello[4], hello[5], hello[5] > 1 ? "s" : "",
                       (unsigned long long)get(hello + 40, 8),
                       (unsigned long long)get(hello + 32, 8));
                uint8_t one[4] = {0, 0, 0, 1};
                ask(card, WRITE_REG, REGISTER_HOST, 4, one, 4, NULL);
                return;
            }
    }
    fail("no card answers");
}

static void store(struct card *card, uint64_t address, const void *octets, unsigned n)
{
    for (unsigned at = 0; at < n; at += PAYLOAD) {
        unsigned part = n - at < PAYLOAD ? n - at : PAYLOAD;
        ask(card, WRITE, address + at, part, (const uint8_t *)octets + at, part, NULL);
    }
}

static void load(struct card *card, uint64_t address, void *octets, unsigned n)
{
    for (unsigned at = 0; at < n; at += PAYLOAD)
        ask(card, READ, address + at, n - at < PAYLOAD ? n - at : PAYLOAD, NULL, 0,
            (uint8_t *)octets + at);
}

int main(int argc, char **argv)
{
    enum { N = 5000, CARDS = 64, SOURCE = 0, RESULT = 32768 };
    static float values[CARDS][N], total[N];
    struct card cards[CARDS];
    int n_cards = argc - 1;
    if (n_cards < 1 || n_cards > CARDS) {
        fprintf(stderr, "usage: %s ADDRESS:PORT ...   the card of each node\n", argv[0]);
        return 2;
    }
    unsigned gen = (unsigned)time(NULL) & 0xFFFF;  /* ahead of what ran before, for hours */
    for (int k = 0; k < n_cards; k++) {
        open_session(&cards[k], argv[k + 1]);
        for (int i = 0; i < N; i++)
            values[k][i] = (float)(i + 1000 * k);
        store(&cards[k], SOURCE, values[k], sizeof values[k]);
        uint8_t job[DESCRIPTOR] = {0};  /* all_reduce, sum, FP32, raw, class 0, table 0 */
        put(job + 0, 2, cards[k].job);
        put(job + 8, 2, (unsigned)getpid() & 0xFFFF);  /* tensor */
        put(job + 10, 2, gen);
        put(job + 12, 4, N);
        put(job + 16, 8, SOURCE);
        put(job + 24, 8, RESULT);
        ask(&cards[k], POST, 0, DESCRIPTOR, job, DESCRIPTOR, NULL);
    }
    for (int k = 0; k < n_cards; k++) {
        uint8_t frame[HEAD + PAYLOAD];
        for (int tried = 0; !cards[k].ended; tried++)
            if (!hear(&cards[k], frame, WAIT_MS) && tried > TRIES)
                fail("a job does not end");
        if (cards[k].completion[4])
            fail("a job has ended with a status: docs/reference/jobs.md");
        load(&cards[k], RESULT, total, sizeof total);
        for (int i = 0; i < N; i++) {
            float wanted = 0;
            for (int c = 0; c < n_cards; c++)
                wanted += values[c][i];
            if (total[i] != wanted)
                fail("a sum is wrong");
        }
        printf("card %d: %d floats summed in %llu cycles\n", k, N,
               (unsigned long long)get(cards[k].completion + 20, 8));
    }
    return 0;
}
