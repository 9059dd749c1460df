package bus_test

import (
	"errors"
	"fmt"

	"github.com/wakebus/wakebus/internal/bus"
)

func ExampleParseExec() {
	request, err := bus.ParseExec([]byte(`{"v":1,"job_id":"j-1","conversation_id":"c-1","argv":["make","test"]}`))
	fmt.Println(request.Argv, request.Timeout(), err)

	_, err = bus.ParseExec([]byte(`{"v":1,"job_id":"j-2","conversation_id":"c-1","argv":["make"],"user":"root"}`))
	var invalid *bus.InvalidRequest
	fmt.Println(errors.As(err, &invalid), invalid.Reason, "-", err)
	// Output:
	// [make test] 2m0s <nil>
	// true invalid_request - user is not a known field
}
