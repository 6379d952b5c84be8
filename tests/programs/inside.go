// Calls functions of Go's library that compute. They run in the first thread alone, on a stack that
// has grown before, so that single steps can follow them.
package main

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

func init() { runtime.LockOSThread() }

//go:noinline
func grow(n int) byte {
	var room [100000]byte
	room[n] = 1
	return room[n/2]
}

func numbers() (sum int) {
	for n := -40; n < 400; n += 7 {
		text := strconv.FormatFloat(float64(n)*1.37e5, 'g', -1, 64)
		back, _ := strconv.ParseFloat(text, 64)
		whole, err := strconv.Atoi(strconv.Itoa(n) + strings.Repeat("0", n&3))
		if err == nil {
			sum += int(back) + whole
		}
		quoted := strconv.Quote(text + "\n\u20ac\x01")
		plain, _ := strconv.Unquote(quoted)
		sum += len(plain) + utf8.RuneCountInString(quoted)
	}
	_, err := strconv.ParseInt("12x", 10, 32)
	return sum + len(err.Error())
}

func words() (sum int) {
	text := strings.Repeat("the quick brown fox jumps over lazy dogs, ", 5)
	words := strings.Fields(strings.ToUpper(text))
	sort.Strings(words)
	sort.SliceStable(words, func(i, j int) bool { return len(words[i]) < len(words[j]) })
	sum += strings.Index(text, "lazy") + strings.LastIndex(text, "fox") + sort.SearchStrings(words, "FOX")
	sum += len(strings.Split(text, ",")) + len(strings.Replace(text, "quick", "slow", 3))
	sum += len(strings.Map(func(r rune) rune { return r ^ 1 }, text)) + len(strings.TrimSpace(text))
	pattern := regexp.MustCompile(`(q\w+|l[ae]zy)\s+(\w*)`)
	for _, match := range pattern.FindAllString(text, -1) {
		sum += len(match)
	}
	return sum + len(pattern.ReplaceAllString(text, "<$2>"))
}

func packed() (sum int) {
	text := []byte(strings.Repeat("abcabcabd", 30) + "the rest")
	var out bytes.Buffer
	writer, _ := flate.NewWriter(&out, 6)
	writer.Write(text)
	writer.Close()
	coded := base64.StdEncoding.EncodeToString(out.Bytes())
	raw, _ := base64.StdEncoding.DecodeString(coded)
	back, _ := io.ReadAll(flate.NewReader(bytes.NewReader(raw)))
	if !bytes.Equal(back, text) {
		panic("other text")
	}
	var value any
	// The order of a map's elements is random.
	json.Unmarshal([]byte(`[{"a": [1, 2.5, true, null, "x\u00e9"]}, {"b": {"c": -3}}]`), &value)
	again, _ := json.Marshal(value)
	return len(coded) + len(again)
}

func main() {
	sum := int(grow(50000)) + numbers() + words() + packed()
	fmt.Println("ok", sum)
}
