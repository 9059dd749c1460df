package emulator_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// A main program calls emulator.MaybeInit first; here TestMain has done it.
func Example() {
	s, err := emulator.New(emulator.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = s.Close() }()
	if err := s.Start(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	req, _ := http.NewRequest("POST", s.URL()+"/v1/sprites", strings.NewReader(`{"name":"box"}`))
	req.Header.Set("Authorization", "Bearer "+s.Token())
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = res.Body.Close()
	fmt.Println(res.StatusCode, s.Sprites()[0].Name, s.Sprites()[0].Status, s.Count("sprite.create", "box"))
	// Output: 201 box cold 1
}
