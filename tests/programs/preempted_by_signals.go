// A loop without a safe point: each garbage collection preempts it by a signal, often just after a
// call.
package main

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

//go:noinline
func leaf(n int) int { return n*3 + 1 }

//go:noinline
func loop(ends *atomic.Bool) int {
	sum := 0
	for !ends.Load() {
		sum = leaf(sum)
		sum = leaf(sum)
		sum = leaf(sum)
		sum = leaf(sum)
	}
	return sum
}

func main() {
	var ends atomic.Bool
	done := make(chan int)
	go func() { done <- loop(&ends) }()
	for i := 0; i < 300; i++ {
		runtime.GC()
	}
	ends.Store(true)
	fmt.Println("ok", <-done&1 == 0)
}
