// Goroutines that sleep inside work(), so that usually another thread continues them, and whose
// stacks grow there. Prints for each path two times that it has measured itself, in ns: `inside`
// within work(), and `outside` around the call.
package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	goroutines = 8
	rounds     = 12
	paths      = 2
)

var inside, outside [paths]int64

//go:noinline
func grow(depth int) int {
	var room [256]byte
	room[depth%256] = 1
	if depth == 0 {
		return int(room[0])
	}
	return grow(depth-1) + int(room[depth%256])
}

//go:noinline
func work(path int, milliseconds int, depth int) int {
	start := time.Now()
	time.Sleep(time.Duration(milliseconds) * time.Millisecond)
	grown := grow(depth)
	time.Sleep(time.Duration(milliseconds) * time.Millisecond)
	atomic.AddInt64(&inside[path], int64(time.Since(start)))
	return grown
}

//go:noinline
func path0(deep int, depth int) int {
	if deep > 0 {
		return path0(deep-1, depth) + 1
	}
	start := time.Now()
	result := work(0, 1, depth)
	atomic.AddInt64(&outside[0], int64(time.Since(start)))
	return result + 1
}

//go:noinline
func path1(deep int, depth int) int {
	if deep > 0 {
		return path1(deep-1, depth) + 1
	}
	start := time.Now()
	result := work(1, 6, depth)
	atomic.AddInt64(&outside[1], int64(time.Since(start)))
	return result + 2
}

func main() {
	var all sync.WaitGroup
	for id := 0; id < goroutines; id++ {
		all.Add(1)
		go func(id int) {
			for round := 0; round < rounds; round++ {
				if id%paths == 0 {
					path0(id, 1+round*8)
				} else {
					path1(id, 1+round*8)
				}
			}
			all.Done()
		}(id)
	}
	all.Wait()
	for path := 0; path < paths; path++ {
		fmt.Printf("inside main.path%d %d\noutside main.path%d %d\n", path, inside[path], path, outside[path])
	}
	fmt.Printf("calls main.work %d\nleft main.work 0\n", goroutines*rounds)
}
