package main

import (
	"context"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/test/e2e/protocol"
)

// observe writes a line for each of txmq's events, under its Go name.
func (s *service) observe(_ context.Context, e txmq.Event) {
	switch e := e.(type) {
	case txmq.HalfSent:
		s.out.line(protocol.Line{Type: "HalfSent", Event: e.EventID, Attempt: e.Attempt})
	case txmq.SendEnded:
		s.out.line(protocol.Line{Type: "SendEnded", Event: e.EventID, Attempt: e.Attempt, Verdict: e.Verdict.String(), Err: text(e.Err)})
	case txmq.EndTransactionLost:
		s.out.line(protocol.Line{Type: "EndTransactionLost", Event: e.EventID, Attempt: e.Attempt, Err: text(e.Err)})
	case txmq.Checked:
		s.out.line(protocol.Line{
			Type: "Checked", Event: e.EventID, Attempt: e.Attempt, Verdict: e.Verdict.String(), Reason: e.Reason,
			Times: e.Times, Fenced: e.Fenced, Err: text(e.Err),
		})
	case txmq.Delivered:
		s.out.line(protocol.Line{
			Type: "Delivered", Event: e.EventID, Outcome: string(e.Outcome), Run: e.Attempt, TookOver: e.TookOver, Err: text(e.Err),
		})
	case txmq.LeaseLost:
		s.out.line(protocol.Line{Type: "LeaseLost", Event: e.EventID})
	case txmq.PayloadConflict:
		s.out.line(protocol.Line{Type: "PayloadConflict", Event: e.EventID})
	case txmq.Swept:
		s.out.line(protocol.Line{Type: "Swept", Event: e.EventID})
	case txmq.JobRun:
		if e.Done > 0 || e.Err != nil {
			s.out.line(protocol.Line{Type: "JobRun", Event: e.Job, Err: text(e.Err)})
		}
	}
}
