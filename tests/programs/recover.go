// Panics that end calls, and deferred functions that recover from them. A function that recovers
// returns, and the functions that the panic has passed through do not.
//
// usage: recover GOROUTINES ROUNDS DEPTH
//
// This many goroutines at once, each with this many rounds, at most this deep.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	failing = iota
	passing
	recovering
	repeating
	nesting
	looping
	cleaning
	ending
	functions
)

var names = [functions]string{"fails", "passes", "recovers", "repeats", "nests", "loops", "cleans", "ends"}
var calls, returns [functions]int64

// Panics at its deepest level if the number is divisible by 3.
//
//go:noinline
func fails(x, depth int) int {
	atomic.AddInt64(&calls[failing], 1)
	var room [16]int
	room[x%16] = x
	if depth == 0 {
		if x%3 == 0 {
			panic(x)
		}
	} else {
		room[0] += fails(x, depth-1)
	}
	atomic.AddInt64(&returns[failing], 1)
	return room[x%16] + room[0]
}

//go:noinline
func cleans(sum *int) {
	atomic.AddInt64(&calls[cleaning], 1)
	*sum += 7
	atomic.AddInt64(&returns[cleaning], 1)
}

// Lets a panic through, and runs a deferred function first.
//
//go:noinline
func passes(sum *int, x, depth int) int {
	atomic.AddInt64(&calls[passing], 1)
	defer cleans(sum)
	result := fails(x, depth)
	atomic.AddInt64(&returns[passing], 1)
	return result
}

//go:noinline
func recovers(sum *int, x, depth int) (result int) {
	atomic.AddInt64(&calls[recovering], 1)
	defer func() {
		if recover() != nil {
			result = fails(x+1, depth/2)
		}
		atomic.AddInt64(&returns[recovering], 1)
	}()
	return passes(sum, x, depth)
}

// Recovers, and panics again if the number is even.
//
//go:noinline
func repeats(sum *int, x, depth int) (result int) {
	atomic.AddInt64(&calls[repeating], 1)
	defer func() {
		if recover() != nil && x%2 == 0 {
			panic("again")
		}
		atomic.AddInt64(&returns[repeating], 1)
	}()
	return fails(x, depth)
}

// Its first deferred function runs after it has recovered. A panic out of a function that recovered
// from another one ends here.
//
//go:noinline
func nests(sum *int, x, depth int) (result int) {
	atomic.AddInt64(&calls[nesting], 1)
	defer func() {
		cleans(sum)
		atomic.AddInt64(&returns[nesting], 1)
	}()
	defer func() {
		if recover() != nil {
			result = recovers(sum, x, depth/2)
		}
	}()
	return recovers(sum, x, depth) + repeats(sum, x, depth)
}

// As many deferred functions as the loop has rounds, so the compiler cannot call them inline.
//
//go:noinline
func loops(sum *int, x, depth int) (result int) {
	atomic.AddInt64(&calls[looping], 1)
	for i := 0; i < 3; i++ {
		last := i == 0
		defer func() {
			if recover() != nil {
				result++
			}
			cleans(sum)
			if last {
				atomic.AddInt64(&returns[looping], 1)
			}
		}()
	}
	return passes(sum, x, depth)
}

// Called at the end on each stack, so that no call on it stays open.
//
//go:noinline
func ends(sum *int) {
	atomic.AddInt64(&calls[ending], 1)
	*sum++
	atomic.AddInt64(&returns[ending], 1)
}

// Recovers, and is never measured.
//
//go:noinline
func unmeasured(sum *int, x, depth int) {
	defer func() { recover() }()
	*sum += passes(sum, x, depth)
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
	sums := make([]int, workers)
	var done sync.WaitGroup
	for w := 0; w < workers; w++ {
		done.Add(1)
		go func(w int) {
			defer done.Done()
			sum := &sums[w]
			for x := 0; x < rounds; x++ {
				*sum += recovers(sum, x, x%depth)
				*sum += nests(sum, x+w, (x+w)%depth)
				*sum += loops(sum, x, x%depth)
				unmeasured(sum, x+w, x%depth)
			}
			ends(sum)
		}(w)
	}
	done.Wait()
	total := 0
	for _, sum := range sums {
		total = total*5 + sum
	}
	fmt.Println("sum", total)
	for i, name := range names {
		fmt.Println("calls main."+name, calls[i])
		fmt.Println("returns main."+name, returns[i])
	}
}
