package emulator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

const (
	dialPatience = 10 * time.Second
	portInterval = 200 * time.Millisecond
)

func socketRoutes() []route {
	return []route{
		{socketMethod, spritePath + "/control", "control.ws", false, (*exchange).controlSocket},
		{socketMethod, spritePath + "/proxy", "proxy.ws", true, (*exchange).proxy},
		{socketMethod, spritePath + "/ports/watch", "ports.ws", true, (*exchange).watchPorts},
		{socketMethod, spritePath + "/fs/watch", "fs.watch", true, (*exchange).watchFiles},
	}
}

// proxy carries one TCP connection (Sprites API reference, proxy).
func (x *exchange) proxy() {
	ws, err := x.upgrade()
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	c, target, err := x.openTarget(ctx, ws)
	if err != nil {
		_ = sendText(ctx, ws, map[string]string{"status": "error", "error": err.Error(), "target": target})
		_ = ws.Close(websocket.StatusInternalError, "")
		return
	}
	defer func() { _ = c.Close() }()
	if sendText(ctx, ws, map[string]string{"status": "connected", "target": target}) != nil {
		return
	}
	x.srv.goOwned(func() {
		defer cancel()
		defer func() { _ = c.Close() }()
		for {
			_, data, err := ws.Read(ctx)
			if err != nil {
				return
			}
			if _, err := c.Write(data); err != nil {
				return
			}
		}
	})
	x.download(ctx, ws, c)
}

func (x *exchange) openTarget(ctx context.Context, ws *websocket.Conn) (net.Conn, string, error) {
	var hello struct {
		Host string `json:"host"`
		Port int    `json:"port"`
	}
	_, data, err := ws.Read(ctx)
	if err == nil {
		err = json.Unmarshal(data, &hello)
	}
	if err != nil {
		return nil, "", fmt.Errorf("invalid proxy request: %w", err)
	}
	if hello.Host == "" {
		hello.Host = "localhost"
	}
	target := net.JoinHostPort(hello.Host, strconv.Itoa(hello.Port))
	m := x.guest()
	if m == nil {
		return nil, target, guest.ErrGone
	}
	c, err := m.Dial(ctx, target, dialPatience)
	return c, target, err
}

// download ends the socket normally when the server inside closes.
func (x *exchange) download(ctx context.Context, ws *websocket.Conn, c io.Reader) {
	buf := make([]byte, readSize)
	for {
		n, err := c.Read(buf)
		if n > 0 && ws.Write(ctx, websocket.MessageBinary, buf[:n]) != nil {
			return
		}
		if err != nil {
			if ctx.Err() == nil {
				_ = ws.Close(websocket.StatusNormalClosure, "")
			}
			return
		}
	}
}

type portEvent struct {
	Type string `json:"type"`
	guest.Port
}

// watchPorts tells what listens now and what changes.
func (x *exchange) watchPorts() {
	ws, err := x.upgrade()
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	ctx := x.ignore(ws)
	ports := x.ports()
	if ports == nil {
		ports = []guest.Port{}
	}
	if sendText(ctx, ws, map[string]any{"type": "port_list", "ports": ports}) != nil {
		return
	}
	x.followPorts(ctx, ports, func(e portEvent) error { return sendText(ctx, ws, e) })
}

func (x *exchange) ports() []guest.Port {
	m := x.guest()
	if m == nil {
		return nil
	}
	ports, err := m.Ports()
	if err != nil {
		return nil
	}
	return ports
}

// followPorts asks again and again, for the kernel tells nobody that a socket
// listens; only while somebody watches.
func (x *exchange) followPorts(ctx context.Context, known []guest.Port, send func(portEvent) error) {
	open := map[int]guest.Port{}
	for _, p := range known {
		open[p.Port] = p
	}
	for pause(ctx, x.srv.cfg.Clock, portInterval) == nil {
		now := map[int]guest.Port{}
		for _, p := range x.ports() {
			now[p.Port] = p
			if _, was := open[p.Port]; !was && send(portEvent{"port_opened", p}) != nil {
				return
			}
		}
		for n, p := range open {
			if _, still := now[n]; !still && send(portEvent{"port_closed", p}) != nil {
				return
			}
		}
		open = now
	}
}

// watchFiles waits for a subscription and then tells of changes.
func (x *exchange) watchFiles() {
	ws, err := x.upgrade()
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	ctx := x.r.Context()
	var sub struct {
		Paths      []string `json:"paths"`
		Recursive  bool     `json:"recursive"`
		WorkingDir string   `json:"workingDir"`
	}
	_, data, err := ws.Read(ctx)
	if err == nil {
		err = json.Unmarshal(data, &sub)
	}
	m := x.guest()
	if err == nil && m == nil {
		err = guest.ErrGone
	}
	var events io.ReadCloser
	if err == nil {
		for i := range sub.Paths {
			sub.Paths[i] = at(sub.WorkingDir, sub.Paths[i])
		}
		events, err = m.Watch(guest.WatchArgs{Paths: sub.Paths, Recursive: sub.Recursive})
	}
	if err != nil {
		_ = sendText(ctx, ws, map[string]string{"type": "error", "message": err.Error()})
		_ = ws.Close(websocket.StatusNormalClosure, "")
		return
	}
	x.relayEvents(ws, events, sub.Paths)
}

func (x *exchange) relayEvents(ws *websocket.Conn, events io.ReadCloser, paths []string) {
	ctx := x.ignore(ws)
	defer func() { _ = events.Close() }()
	defer context.AfterFunc(ctx, func() { _ = events.Close() })()
	if sendText(ctx, ws, map[string]any{"type": "subscribed", "paths": paths}) != nil {
		return
	}
	dec := json.NewDecoder(events)
	for {
		var e guest.WatchEvent
		if dec.Decode(&e) != nil {
			return
		}
		msg := struct {
			Type string `json:"type"`
			guest.WatchEvent
		}{"event", e}
		if sendText(ctx, ws, msg) != nil {
			return
		}
	}
}
