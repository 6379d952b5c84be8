// Goroutines whose stacks move while calls are under way: to larger ones, as they go deeper, and to
// smaller ones, by the garbage collector, while they wait.
//
// usage: moving GOROUTINES ROUNDS DEPTH [wait]
//
// Each round starts this many new goroutines; with `wait` the rounds start at SIGUSR1.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const nap = 2 * time.Millisecond

//go:noinline
func deep(n int) int {
	var room [16]int
	room[n%16] = n
	if n == 0 {
		return room[0]
	}
	return deep(n-1) + room[n%16]
}

// Its stack grows below it, shrinks while it waits for the collections, and grows again.
//
//go:noinline
func wide(collected chan bool, depth int) int {
	sum := deep(depth)
	<-collected
	time.Sleep(nap)
	return sum + deep(depth/2)
}

func number(at int) int {
	n, err := strconv.Atoi(os.Args[at])
	if err != nil {
		panic(err)
	}
	return n
}

func main() {
	workers, rounds, depth := number(1), number(2), number(3)
	if len(os.Args) > 4 {
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGUSR1)
		fmt.Println("ready")
		<-told
	}
	total := 0
	for i := 0; i < rounds; i++ {
		collected := make(chan bool)
		sums := make(chan int, workers)
		var begun sync.WaitGroup
		for w := 0; w < workers; w++ {
			begun.Add(1)
			go func() {
				begun.Done()
				sums <- wide(collected, depth)
			}()
		}
		begun.Wait()
		for j := 0; j < 3; j++ {
			runtime.GC()
		}
		close(collected)
		for w := 0; w < workers; w++ {
			total += <-sums
		}
	}
	calls := workers * rounds
	fmt.Println("sum", total)
	fmt.Println("calls main.wide", calls)
	fmt.Println("calls main.deep", calls*(depth+1+depth/2+1))
}
