// Command oracle tells what the reference's own functions make of an input.
//
// It reads one JSON request a line, {"f": <function>, "in": <input>}, and writes one answer a line, in the same order:
// {"out": <result>}, {"err": <text>} where the function returns an error, or {"panic": <text>}.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"
)

type request struct {
	Function string          `json:"f"`
	Input    json.RawMessage `json:"in"`
}

type answer struct {
	Out   any    `json:"out,omitzero"`
	Err   string `json:"err,omitempty"`
	Panic string `json:"panic,omitempty"`
}

var functions = map[string]func(json.RawMessage) (any, error){}

// register makes a function known under a name; its input is decoded as the API's clients decode objects.
func register[In, Out any](name string, function func(In) (Out, error)) {
	functions[name] = func(raw json.RawMessage) (any, error) {
		var in In
		decode(raw, &in)
		return function(in)
	}
}

func decode(raw json.RawMessage, into any) {
	if err := utiljson.Unmarshal(raw, into); err != nil {
		panic(fmt.Sprintf("cannot decode the input: %v", err))
	}
}

func respond(line []byte) (reply answer) {
	defer func() {
		if reason := recover(); reason != nil {
			reply = answer{Panic: fmt.Sprint(reason)}
		}
	}()
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		panic(err)
	}
	function, known := functions[asked.Function]
	if !known {
		panic("unknown function " + asked.Function)
	}
	out, err := function(asked.Input)
	if err != nil {
		return answer{Err: err.Error()}
	}
	return answer{Out: out}
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	reader := bufio.NewReaderSize(os.Stdin, 1<<20)
	writer := bufio.NewWriterSize(os.Stdout, 1<<20)
	encoder := json.NewEncoder(writer)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 0 {
			if err := encoder.Encode(respond(line)); err != nil {
				panic(err)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			panic(err)
		}
	}
	if err := writer.Flush(); err != nil {
		panic(err)
	}
}
