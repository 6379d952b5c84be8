// Go threads that end and are followed by others, which may get the same FS bases. Prints the CPU
// time of the calls in ns, `inside` work() and `outside` around the call, and `thread TID CALLS`
// for each thread.
package main

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

const (
	threads = 12
	spin    = 2000000
)

var inside, outside int64

func cpu() int64 {
	var time syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 3, uintptr(unsafe.Pointer(&time)), 0)
	return time.Sec*1000000000 + time.Nsec
}

//go:noinline
func work() int64 {
	start := cpu()
	for cpu()-start < spin {
	}
	taken := cpu() - start
	inside += taken
	return taken
}

func main() {
	calls := 0
	for id := 0; id < threads; id++ {
		done := make(chan int)
		go func(calls int) {
			// The goroutine ends without unlocking its thread, so the thread ends, too.
			runtime.LockOSThread()
			for i := 0; i < calls; i++ {
				start := cpu()
				work()
				outside += cpu() - start
			}
			done <- syscall.Gettid()
		}(id + 1)
		fmt.Println("thread", <-done, id+1)
		calls += id + 1
		runtime.GC()
	}
	fmt.Printf("calls main.work %d\ninside main.work %d\noutside main.work %d\n", calls, inside, outside)
}
