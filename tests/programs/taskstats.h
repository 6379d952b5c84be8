/* The time that a thread has waited for its own disk reads and writes, in ns, as the kernel reports
 * it over netlink (Documentation/accounting/taskstats.rst). Requires CAP_NET_ADMIN, and
 * kernel.task_delayacct when the thread is created. */
#ifndef TASKSTATS_H
#define TASKSTATS_H

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union netlink_message {
    struct {
        struct nlmsghdr head;
        struct genlmsghdr generic;
        char attributes[4096 - sizeof(struct nlmsghdr) - sizeof(struct genlmsghdr)];
    };
    char bytes[4096];
};

/* An attribute of this type among those in a range, or NULL. */
static inline struct nlattr *find_attribute(char *at, char *end, int type)
{
    while (end - at >= NLA_HDRLEN) {
        struct nlattr *found = (struct nlattr *)at;
        if (found->nla_len < NLA_HDRLEN || found->nla_len > end - at)
            return NULL;
        if ((found->nla_type & NLA_TYPE_MASK) == type)
            return found;
        at += NLA_ALIGN(found->nla_len);
    }
    return NULL;
}

/* The attribute of this type in the answer to a command with one attribute, or NULL. */
static inline struct nlattr *netlink_ask(int fd, int family, int command, int attribute, const void *value,
    size_t size, union netlink_message *message, int wanted)
{
    memset(message, 0, sizeof *message);
    struct nlattr *asked = (struct nlattr *)message->attributes;
    *asked = (struct nlattr){.nla_len = (uint16_t)(NLA_HDRLEN + size), .nla_type = (uint16_t)attribute};
    memcpy((char *)asked + NLA_HDRLEN, value, size);
    message->generic = (struct genlmsghdr){.cmd = (uint8_t)command, .version = 1};
    message->head = (struct nlmsghdr){
        .nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN) + (uint32_t)NLA_ALIGN(asked->nla_len),
        .nlmsg_type = (uint16_t)family,
        .nlmsg_flags = NLM_F_REQUEST,
    };
    if (send(fd, message, message->head.nlmsg_len, 0) < 0)
        return NULL;
    long got = recv(fd, message, sizeof *message, 0);
    if (got < (long)NLMSG_LENGTH(GENL_HDRLEN) || message->head.nlmsg_type == NLMSG_ERROR)
        return NULL;
    return find_attribute(message->attributes, message->bytes + got, wanted);
}

/* A socket for block_io_ns, with the number of the family in `family`; -1 if the kernel does not
 * account for waits, or does not report them to this user. */
static inline int taskstats_open(int *family)
{
    char is_on = '0';
    FILE *setting = fopen("/proc/sys/kernel/task_delayacct", "r");
    if (setting) {
        is_on = (char)fgetc(setting);
        fclose(setting);
    }
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
    if (fd < 0)
        return -1;
    union netlink_message message;
    struct nlattr *found = netlink_ask(fd, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME,
        TASKSTATS_GENL_NAME, sizeof TASKSTATS_GENL_NAME, &message, CTRL_ATTR_FAMILY_ID);
    if (is_on != '1' || !found) {
        close(fd);
        return -1;
    }
    *family = *(uint16_t *)((char *)found + NLA_HDRLEN);
    return fd;
}

/* The time that this thread has waited so far; -1 if the kernel does not report it. */
static inline int64_t block_io_ns(int fd, int family)
{
    union netlink_message message;
    uint32_t thread = (uint32_t)gettid();
    struct nlattr *answer = netlink_ask(fd, family, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_PID, &thread,
        sizeof thread, &message, TASKSTATS_TYPE_AGGR_PID);
    if (!answer)
        return -1;
    char *inner = (char *)answer + NLA_HDRLEN, *end = (char *)answer + answer->nla_len;
    struct nlattr *stats = find_attribute(inner, end, TASKSTATS_TYPE_STATS);
    if (!stats)
        return -1;
    uint64_t total;
    memcpy(&total, (char *)stats + NLA_HDRLEN + offsetof(struct taskstats, blkio_delay_total), sizeof total);
    return (int64_t)total;
}

#endif
