// Package testenv gives tests the services that scripts/services brings up, and
// each package its TestMain. Only tests import it.
//
// A service is found by its TXMQ_TEST_... variable, else in the file
// .services/env that `scripts/services up` writes at the module root.
//
// Invariants:
//   - A test whose service is missing skips and says how to start it, but fails
//     when CI=true: a skip there would go unseen for ever.
//   - A database is one test's alone, and is gone when the test ends.
//   - Main reports every goroutine left behind that is not named in leaks.go.
package testenv
