package remoting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Call signs one request, sends it over a connection of its own and returns the
// response, with a *CodeError too if that is not success. ctx bounds all of
// it; without a deadline it waits as long as the peer keeps the connection.
// An error that is not a *CodeError does not say whether the request was
// carried out. A one-way request is refused: nobody would answer it.
func (k Keys) Call(ctx context.Context, addr string, req Frame) (Frame, error) {
	res, err := call(ctx, addr, k.Sign(req))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause // not the i/o timeout that it caused
		}
		return Frame{}, fmt.Errorf("remoting: call %d at %s: %w", req.Code, addr, err)
	}
	if res.Code != ResSuccess {
		return res, fmt.Errorf("remoting: call %d at %s: %w", req.Code, addr, &CodeError{Code: res.Code, Remark: res.Remark})
	}
	return res, nil
}

func call(ctx context.Context, addr string, req Frame) (Frame, error) {
	if req.IsOneWay() || req.IsResponse() {
		return Frame{}, errors.New("want a request that is answered")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return Frame{}, err
	}
	defer func() { _ = conn.Close() }() // every error that matters came before

	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cut)
		_ = conn.SetDeadline(time.Unix(1, 0)) // fails only on a closed connection, which is as good
	})
	defer func() {
		if !stop() {
			<-cut // leave no goroutine behind
		}
	}()

	if err := req.Write(conn); err != nil {
		return Frame{}, err
	}
	for {
		res, err := Read(conn, MaxFrame)
		if err != nil {
			return Frame{}, err
		}
		if res.IsResponse() && res.Opaque == req.Opaque {
			return res, nil
		}
	}
}

// Request is a request frame with the JSON header that every broker version
// reads, as the Go client would send it.
func Request(code int, fields map[string]string, body []byte) Frame {
	return Frame{
		Code:      code,
		Language:  LanguageGo,
		Version:   317, // the Go client's
		Opaque:    1,   // alone on its connection
		ExtFields: fields,
		Body:      body,
	}
}
