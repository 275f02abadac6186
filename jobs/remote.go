package jobs

import (
	"context"

	"github.com/txmq/txmq/internal/rocketmq"
)

// broker is what compensate asks of RocketMQ. A run has one, and closes it.
type broker interface {
	// SendBack and Republish are those of internal/rocketmq.
	SendBack(ctx context.Context, r rocketmq.SendBackRequest) error
	Republish(ctx context.Context, r rocketmq.RepublishRequest) error
	Close()
}

// senderGroup is the producer group of what Republish stores.
const senderGroup = "TXMQ_REDRIVE"

// remote is the real one. Not for concurrent use.
type remote struct {
	cfg    Config
	sender *rocketmq.Sender // made when first needed
}

func (c Config) newRemote() broker { return &remote{cfg: c} }

func (r *remote) SendBack(ctx context.Context, req rocketmq.SendBackRequest) error {
	return rocketmq.SendBack(ctx, r.cfg.Broker, req)
}

func (r *remote) Republish(ctx context.Context, req rocketmq.RepublishRequest) error {
	if r.sender == nil {
		s, err := rocketmq.NewSender(rocketmq.SenderConfig{Broker: r.cfg.Broker, Group: senderGroup, Logger: r.cfg.client})
		if err != nil {
			return err
		}
		if err := s.Start(ctx); err != nil {
			return err
		}
		r.sender = s
	}
	_, err := r.sender.Republish(ctx, req)
	return err
}

// Close ends the connections, if there are any.
func (r *remote) Close() {
	if r.sender != nil {
		_ = r.sender.Close(context.Background()) // nothing is in flight
	}
}
