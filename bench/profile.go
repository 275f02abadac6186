package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// profile writes cpu.pprof and allocs.pprof into dir, of all that runs until
// stop. It costs some of the rates, on all sides.
func profile(dir string) (stop func() error, err error) {
	runtime.MemProfileRate = 4 << 10
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	cpu, err := os.Create(filepath.Join(dir, "cpu.pprof")) //nolint:gosec // the caller's own folder
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, errors.Join(err, cpu.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		allocs, err := os.Create(filepath.Join(dir, "allocs.pprof")) //nolint:gosec // the caller's own folder
		if err != nil {
			return errors.Join(err, cpu.Close())
		}
		return errors.Join(cpu.Close(), pprof.Lookup("allocs").WriteTo(allocs, 0), allocs.Close())
	}, nil
}
