package consumer

import (
	"context"
	"time"

	"github.com/txmq/txmq/model"
)

// waited claims again, every Wait.Poll, while another worker has the event in
// progress, for at most Wait.Max. What then stands is acted upon: in progress
// still means later.
func (r *run) waited(ctx context.Context, claim func(context.Context) error) error {
	err := claim(ctx)
	w := r.c.cfg.Wait
	if w.Max == 0 {
		return err
	}
	over := time.NewTimer(w.Max)
	defer over.Stop()
	look := time.NewTicker(w.Poll)
	defer look.Stop()
	for err == nil && r.claimed.Decision == model.InProgress {
		select {
		case <-look.C:
			err = claim(ctx)
		case <-over.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}
