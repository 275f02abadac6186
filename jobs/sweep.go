package jobs

import (
	"context"

	"github.com/txmq/txmq"
)

// sweep puts PROCESSING rows whose lease is over to FAIL, so that work whose
// worker died does not stay silently.
func sweep(c Config) job {
	return job{name: "sweep", every: c.Sweep.Every, timeout: c.Sweep.Timeout, run: c.sweep}
}

// sweep goes on until a batch is not full, or Max is met.
func (c Config) sweep(ctx context.Context) (res Result, err error) {
	for res.Done+c.Sweep.Batch <= c.Sweep.Max {
		swept, err := c.Store.Sweep(ctx, c.Sweep.Batch)
		for _, row := range swept { // also those before an error
			c.Observe.Emit(ctx, txmq.Swept{Consumer: row.Consumer, EventID: row.EventID, Owner: row.Owner})
		}
		res.Done += len(swept)
		if err != nil || len(swept) < c.Sweep.Batch {
			return res, err
		}
	}
	res.More = true
	return res, nil
}
