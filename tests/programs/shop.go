// A service with long names: goroutines look things up in a cache, mostly through one slow caller.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

type item struct{ price int }

type inventoryCache struct{ entries map[string]*item }

//go:noinline
func (c *inventoryCache) lookUpByName(name string) *item { return c.entries[name] }

//go:noinline
func priceOfBasket(c *inventoryCache, names []string) (sum int) {
	for _, name := range names {
		sum += c.lookUpByName(name).price
	}
	return
}

//go:noinline
func recommendForEverybody(c *inventoryCache, names []string) (sum int) {
	for times := 0; times < 50; times++ {
		for _, name := range names {
			sum += c.lookUpByName(name).price
		}
	}
	return
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	cache := &inventoryCache{map[string]*item{}}
	var names []string
	for n := 0; n < 64; n++ {
		names = append(names, fmt.Sprint("item number ", n))
		cache.entries[names[n]] = &item{n}
	}
	fmt.Println("ready")
	sum := make(chan int)
	go func() {
		all := 0
		for time.Now().Before(end) {
			all += priceOfBasket(cache, names) + recommendForEverybody(cache, names)
			time.Sleep(time.Millisecond)
		}
		sum <- all
	}()
	fmt.Println("ok sum", <-sum != 0)
}
