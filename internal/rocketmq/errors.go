package rocketmq

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	clienterrors "github.com/apache/rocketmq-client-go/v2/errors"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
)

// errNoRoute: the client found no queue to send to. It does not say whether
// the topic or the name server is missing.
var errNoRoute = errors.New("no route")

// CodeError is a broker's answer to a request that it did not carry out. It
// unwraps to txmq.ErrRefused, or to txmq.ErrBrokerUnreachable where the same
// request may be accepted later (busy, not available).
type CodeError struct {
	Code   int
	Remark string // the broker's text, one line
	kind   error
}

// Error has the code and the broker's text.
func (e *CodeError) Error() string { return fmt.Sprintf("%v: code %d: %s", e.kind, e.Code, e.Remark) }

// Unwrap gives the kind: txmq.ErrRefused or txmq.ErrBrokerUnreachable.
func (e *CodeError) Unwrap() error { return e.kind }

const maxRemark = 300

func newCodeError(code int, remark string) *CodeError {
	remark, _, _ = strings.Cut(strings.TrimSpace(remark), "\n") // some brokers add a stack
	if len(remark) > maxRemark {
		remark = strings.ToValidUTF8(remark[:maxRemark], "") + "..."
	}
	e := &CodeError{Code: code, Remark: remark, kind: txmq.ErrRefused}
	switch code {
	case remoting.ResSystemBusy, remoting.ResServiceNotAvailable:
		e.kind = txmq.ErrBrokerUnreachable
	case remoting.ResSystemError:
		// 4.x answers so to a bad signature, and to its own troubles.
		if !e.isACL() {
			e.kind = txmq.ErrBrokerUnreachable
		}
	}
	return e
}

// The client formats a broker's code in two ways, and as nothing but text.
var clientCode = regexp.MustCompile(`(?s)^CODE: (\d+),? +DESC: (.*)$`)

// classify gives a send's error its kind. errNoRoute is left to the caller, who
// can ask the name server.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if m := clientCode.FindStringSubmatch(err.Error()); m != nil {
		code, convErr := strconv.Atoi(m[1])
		if convErr == nil {
			return newCodeError(code, m[2])
		}
	}
	switch {
	case errors.Is(err, clienterrors.ErrService), errors.Is(err, clienterrors.ErrNotRunning):
		return txmq.ErrClosed
	case strings.HasSuffix(err.Error(), "route info not found"):
		return errNoRoute
	default: // time-outs and what the network says
		return fmt.Errorf("%w: %w", txmq.ErrBrokerUnreachable, err)
	}
}

// typed gives the error of a call of our own its kind, as classify does with
// the client's.
func typed(err error) error {
	var code *remoting.CodeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &code):
		return newCodeError(code.Code, code.Remark)
	default:
		return fmt.Errorf("%w: %w", txmq.ErrBrokerUnreachable, err)
	}
}

// unsent marks an error after which nothing can have left for the broker.
type unsent struct{ error }

// Unwrap gives the error.
func (e unsent) Unwrap() error { return e.error }

// Unsent says that err, of Sending.Try or Sender.Send, rules out that this try
// was stored: nothing left for the broker, or it answered that it does not
// store. A broker's system error (code 1) may come after the message was stored.
func Unsent(err error) bool {
	var (
		code *CodeError
		dial *net.OpError
	)
	switch {
	case errors.As(err, new(unsent)), errors.Is(err, txmq.ErrRefused), errors.Is(err, txmq.ErrClosed):
		return true
	case errors.As(err, &code):
		return code.Code != remoting.ResSystemError
	case errors.As(err, &dial):
		return dial.Op == "dial"
	default:
		return false
	}
}
