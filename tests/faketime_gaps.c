/* What libfaketime 0.9.10 (Debian 12) leaves out of the calls by which Python waits until a moment of a clock.
 *
 * It moves what clock_gettime says, but sem_clockwait and pthread_cond_clockwait then wait for the kernel's clock to say
 * the same, and its clock_nanosleep refuses a moment of a clock that it does not move. Here all three wait for as long
 * as is left by the clock that the program sees. Preloaded before libfaketime; see faked_clock.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000L

/* The moment by the kernel's clock that is as far away as `seen` is by the one that the program sees. */
static struct timespec by_the_kernel(clockid_t clock, const struct timespec *seen) {
  struct timespec now, end;
  clock_gettime(clock, &now);
  syscall(SYS_clock_gettime, clock, &end);
  end.tv_sec += seen->tv_sec - now.tv_sec;
  end.tv_nsec += seen->tv_nsec - now.tv_nsec;
  if (end.tv_nsec < 0) end.tv_nsec += SECOND_NS, end.tv_sec--;
  if (end.tv_nsec >= SECOND_NS) end.tv_nsec -= SECOND_NS, end.tv_sec++;
  if (end.tv_sec < 0) end.tv_sec = end.tv_nsec = 0;
  return end;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left) {
  struct timespec end = flags & TIMER_ABSTIME ? by_the_kernel(clock, time) : *time;
  return syscall(SYS_clock_nanosleep, clock, flags, &end, left) ? errno : 0;
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *time) {
  static int (*real)(sem_t *, clockid_t, const struct timespec *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sem_clockwait");
  struct timespec end = by_the_kernel(clock, time);
  return real(semaphore, clock, &end);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *time) {
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
  struct timespec end = by_the_kernel(clock, time);
  return real(condition, mutex, clock, &end);
}
