// Package docs has only tests: they hold the pages in the repository's root and
// in docs/ to the code. See CONTRIBUTING.md.
package docs
