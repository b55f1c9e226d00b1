// Scans of a bbolt file, which maps it under MADV_RANDOM: bolt make | plain|remedied HOW, as in misuse.py. A unit is 1 000 rows.
package main

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	bolt "go.etcd.io/bbolt"
)

const rows = 300000

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func fill() {
	base, err := bolt.Open("data.bolt", 0o600, &bolt.Options{NoSync: true})
	check(err)
	for first := 0; first < rows; first += 10000 {
		check(base.Update(func(change *bolt.Tx) error {
			bucket, err := change.CreateBucketIfNotExists([]byte("t"))
			check(err)
			for row := first; row < first+10000; row++ {
				value := make([]byte, 1000)
				rand.Read(value)
				check(bucket.Put([]byte(fmt.Sprintf("%08d", row)), value))
			}
			return nil
		}))
	}
	check(base.Sync())
	check(base.Close())
}

// Takes MADV_RANDOM back: MADV_SEQUENTIAL for the file's mapping.
func advise() {
	maps, err := os.Open("/proc/self/maps")
	check(err)
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if strings.HasSuffix(lines.Text(), "data.bolt") {
			ends := strings.Split(strings.Fields(lines.Text())[0], "-")
			first, _ := strconv.ParseUint(ends[0], 16, 64)
			end, _ := strconv.ParseUint(ends[1], 16, 64)
			all := unsafe.Slice((*byte)(unsafe.Pointer(uintptr(first))), int(end-first))
			check(syscall.Madvise(all, syscall.MADV_SEQUENTIAL))
		}
	}
}

func main() {
	if os.Args[1] == "make" {
		fill()
		return
	}
	base, err := bolt.Open("data.bolt", 0o600, &bolt.Options{ReadOnly: true})
	check(err)
	if os.Args[1] == "remedied" {
		advise()
	}
	kind, figure, _ := strings.Cut(os.Args[2], "=")
	most, _ := strconv.ParseFloat(figure, 64)
	check(os.WriteFile("ready", nil, 0o600))
	started, done, sum := time.Now(), 0, 0
	for {
		check(base.View(func(view *bolt.Tx) error {
			number := 0
			return view.Bucket([]byte("t")).ForEach(func(_, value []byte) error {
				for at := 0; at < len(value); at += 64 {
					sum += int(value[at])
				}
				if number++; number%1000 != 0 {
					return nil
				}
				done++
				seconds := time.Since(started).Seconds()
				if (kind == "n" && float64(done) >= most) || (kind == "s" && seconds >= most) {
					fmt.Println(done, seconds)
					os.Exit(0)
				}
				return nil
			})
		}))
	}
}
