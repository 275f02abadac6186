package txmq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	const password = "hunter2"
	broker := txmq.Broker{NameServers: []string{"127.0.0.1:9876"}, AccessKey: "ak", SecretKey: password}
	secret := broker.SecretKey
	hidden := func(t *testing.T, what, text string) {
		t.Helper()
		if strings.Contains(text, password) || strings.Contains(text, fmt.Sprintf("%x", password)) {
			t.Errorf("%s prints %s", what, text)
		}
		if !strings.Contains(text, "secret") && !strings.Contains(text, fmt.Sprintf("%x", "[secret]")) && !strings.Contains(text, fmt.Sprintf("%X", "[secret]")) {
			t.Errorf("%s = %s, want it said that there is one", what, text)
		}
	}
	for _, v := range []any{secret, &broker, broker, []txmq.Secret{secret}, map[string]txmq.Secret{"k": secret}, struct{ B txmq.Broker }{broker}} {
		for _, verb := range []string{"%d", "%t", "%c", "%v", "%+v", "%#v", "%s", "%q", "%x", "%X"} {
			if verb == "%#v" && reflect.TypeOf(v).Kind() == reflect.Pointer {
				v = broker
			}
			hidden(t, fmt.Sprintf("%s of %T", verb, v), fmt.Sprintf(verb, v))
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		hidden(t, fmt.Sprintf("JSON of %T", v), string(text))
		for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
			"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var out bytes.Buffer
			slog.New(handler(&out)).Info("start", "v", v)
			hidden(t, fmt.Sprintf("slog %s of %T", name, v), out.String())
		}
	}
	hidden(t, "an error", fmt.Errorf("connect %v: %w", broker, errors.New("no")).Error())
	if got := fmt.Sprintf("%v|%#v", txmq.Secret(""), txmq.Secret("")); got != `|""` {
		t.Errorf("an empty secret prints %s, want nothing", got)
	}
	if string(secret) != password {
		t.Errorf("the value itself = %q", string(secret))
	}
}

var errDriver = errors.New("driver: bad connection")

func TestErrorsAreFoundThroughWraps(t *testing.T) {
	t.Parallel()
	sentinels := []error{
		txmq.ErrFenced, txmq.ErrDuplicateEvent, txmq.ErrOutcomeUnknown, txmq.ErrHalfNotDurable, txmq.ErrBrokerUnreachable,
		txmq.ErrRefused, txmq.ErrTxBroken, txmq.ErrTxMisused, txmq.ErrInTransaction, txmq.ErrLeaseLost, txmq.ErrPayloadMismatch,
		txmq.ErrMissingID, txmq.ErrNotFound, txmq.ErrClosed, txmq.ErrNotStarted, txmq.ErrNotDurable, txmq.ErrMayBeStored,
	}
	for i, sentinel := range sentinels {
		wrapped := fmt.Errorf("consumer: %w", &txmq.OpError{Op: "claim", EventID: "pay:1", Err: fmt.Errorf("%w: %w", sentinel, errDriver)})
		for j, other := range sentinels {
			if got := errors.Is(wrapped, other); got != (i == j) {
				t.Errorf("errors.Is(%v, %v) = %v", wrapped, other, got)
			}
		}
		var op *txmq.OpError
		if !errors.As(wrapped, &op) || op.EventID != "pay:1" || !errors.Is(wrapped, errDriver) {
			t.Errorf("errors.As(%v) = %+v", wrapped, op)
		}
		if text := sentinel.Error(); text == "" || strings.ToLower(text[:1]) != text[:1] || strings.HasSuffix(text, ".") {
			t.Errorf("%q is no lower-case line", text)
		}
	}
	unknown := fmt.Errorf("send: %w", &txmq.OutcomeUnknownError{Topic: "t", EventID: "pay:1", Attempt: "a-1", Err: errDriver})
	var outcome *txmq.OutcomeUnknownError
	if !errors.Is(unknown, txmq.ErrOutcomeUnknown) || !errors.Is(unknown, errDriver) || errors.Is(unknown, txmq.ErrFenced) ||
		!errors.As(unknown, &outcome) || outcome.Attempt != "a-1" {
		t.Errorf("%v is not what it says", unknown)
	}
}

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		`txmq: claim "pay:1": not found`: &txmq.OpError{Op: "claim", EventID: "pay:1", Err: txmq.ErrNotFound},
		`txmq: sweep: closed`:            &txmq.OpError{Op: "sweep", Err: txmq.ErrClosed},
		`outcome of the commit is unknown: event "pay:1" attempt a-1: driver: bad connection`: &txmq.OutcomeUnknownError{
			EventID: "pay:1", Attempt: "a-1", Err: errDriver,
		},
		`producer.Config.Group is missing: want letters`:      &txmq.FieldError{Field: "producer.Config.Group", Want: "letters"},
		`Batch is 5000: want 1 to 1000`:                       &txmq.FieldError{Field: "Batch", Value: 5000, Want: "1 to 1000"},
		`Topic is "a b\n": want letters`:                      &txmq.FieldError{Field: "Topic", Value: "a b\n", Want: "letters"},
		`Topic is "": want letters`:                           &txmq.FieldError{Field: "Topic", Value: "", Want: "letters"},
		`txmq: schema: table t_meta: exists; choose another`:  &txmq.SchemaError{Table: "t_meta", Problem: "exists", Hint: "choose another"},
		`txmq: schema: the tables are older`:                  &txmq.SchemaError{Problem: "the tables are older"},
		`txmq: schema: no tables; run ` + "`txmq migrate up`": &txmq.SchemaError{Problem: "no tables", Hint: "run `txmq migrate up`"},
	} {
		if got := err.Error(); got != want {
			t.Errorf("text = %s\nwant   %s", got, want)
		}
	}
	joined := errors.Join(&txmq.FieldError{Field: "a", Want: "b"}, &txmq.FieldError{Field: "c", Value: 1, Want: "d"})
	if got, want := joined.Error(), "a is missing: want b\nc is 1: want d"; got != want {
		t.Errorf("joined = %q, want %q", got, want)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	var forgotten txmq.Verdict
	got := []string{forgotten.String(), txmq.Commit.String(), txmq.Rollback.String(), txmq.Verdict(99).String()}
	if diff := cmp.Diff([]string{"unknown", "commit", "rollback", "unknown"}, got); diff != "" {
		t.Errorf("words (-want +got):\n%s", diff)
	}
	if forgotten != txmq.Unknown {
		t.Error("the zero Verdict is not Unknown")
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	var nobody txmq.Observe
	nobody.Emit(t.Context(), txmq.LeaseLost{})
	var got txmq.Event
	txmq.Observe(func(_ context.Context, e txmq.Event) { got = e }).Emit(t.Context(), txmq.LeaseLost{EventID: "pay:1"})
	if diff := cmp.Diff(txmq.Event(txmq.LeaseLost{EventID: "pay:1"}), got); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

// TestWireNames: other services read these; a change breaks them.
func TestWireNames(t *testing.T) {
	t.Parallel()
	got := []string{
		txmq.PropertyEventID, txmq.PropertyAttempt, txmq.PropertyDatabaseID, txmq.PropertyBorn, txmq.PropertyRedrive, txmq.PropertyShardingKey,
	}
	if diff := cmp.Diff([]string{"TXMQ_EVENT_ID", "TXMQ_ATTEMPT", "TXMQ_DB", "TXMQ_BORN", "TXMQ_REDRIVE", "TXMQ_KEY"}, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
