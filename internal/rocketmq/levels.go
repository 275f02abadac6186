package rocketmq

import "time"

// levels are the broker's default messageDelayLevel. A broker set up with
// others delays by its own table; the level numbers stay.
var levels = [...]time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute,
	6 * time.Minute, 7 * time.Minute, 8 * time.Minute, 9 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
}

// MaxLevel is the number of the longest delay level.
const MaxLevel = len(levels)

// deadLetterLevel makes the broker put a message that is sent back straight
// into the dead-letter topic.
const deadLetterLevel = -1

// Level is the number, from 1, of the shortest of the broker's delays that is
// not shorter than d. Anything above two hours is level 18, two hours; zero and
// less is level 1, one second: the broker knows no redelivery at once.
func Level(d time.Duration) int {
	for i, l := range levels {
		if d <= l {
			return i + 1
		}
	}
	return MaxLevel
}

// Delay is how long the broker waits that is asked for d.
func Delay(d time.Duration) time.Duration { return levels[Level(d)-1] }
