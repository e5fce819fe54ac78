// Each value doubled, by Go's net/http; the addresses are those of fastapi_model.py.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

var (
	lock    sync.Mutex
	refused = map[string]int{}
)

func isMeant(row string, rows [][]any) bool {
	for _, one := range rows {
		if row == "any" || fmt.Sprint(one[0]) == row {
			return true
		}
	}
	return false
}

func double(w http.ResponseWriter, r *http.Request) {
	rows := [][]any{}
	if err := json.NewDecoder(r.Body).Decode(&rows); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		} else {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/predictions/")+"---", "-")
	times, _ := strconv.Atoi(parts[1])
	lock.Lock()
	is := isMeant(parts[2], rows) && refused[r.URL.Path] < times
	if is {
		refused[r.URL.Path]++
	}
	lock.Unlock()
	if is && parts[0] == "raise" {
		panic(parts[2])
	}
	if is {
		status, _ := strconv.Atoi(parts[0])
		http.Error(w, http.StatusText(status), status)
		return
	}
	answer := []float64{}
	for _, one := range rows {
		answer = append(answer, 2*one[0].(float64))
	}
	json.NewEncoder(w).Encode(answer)
}

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("/predictions/", double)
	mux.HandleFunc("POST /slash/", double)
	mux.HandleFunc("GET /get", double)
	mux.Handle("/large", http.MaxBytesHandler(http.HandlerFunc(double), 1_000_000))
	mux.Handle("/small", http.MaxBytesHandler(http.HandlerFunc(double), 20))
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], mux))
}
