#ifndef QUASAR_TESTS_CHI2_H
#define QUASAR_TESTS_CHI2_H

#include <math.h>

/* The chance that a chi-square variable of df degrees of freedom exceeds x: the upper
 * incomplete gamma function, by its series or its continued fraction. */
static inline double chi2_tail(double x, int df)
{
    const double a = df / 2.0;
    x /= 2;
    if (x <= 0 || df < 1) {
        return 1;
    }
    const double scale = exp(a * log(x) - x - lgamma(a));
    if (x < a + 1) {
        double term = 1 / a, sum = term;
        for (int n = 1; n < 2000 && term > sum * 1e-15; n++) {
            term *= x / (a + n);
            sum += term;
        }
        return 1 - scale * sum;
    }
    double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int i = 1; i < 2000; i++) {
        const double f = -i * (i - a);
        b += 2;
        d = 1 / (f * d + b);
        c = b + f / c;
        h *= c * d;
        if (fabs(c * d - 1) < 1e-14) {
            break;
        }
    }
    return scale * h;
}

/* Counts against chances. Cells that expect fewer than 5 are one cell; a count where
 * there is no chance has no probability at all. */
static inline double chi2_law(const int *count, const double *p, int cells, double n)
{
    double chi = 0, rest = 0, rest_p = 0;
    int df = -1;
    for (int i = 0; i < cells; i++) {
        const double want = n * p[i];
        if (count[i] > 0 && p[i] <= 0) {
            return 0;
        }
        if (want < 5) {
            rest += count[i];
            rest_p += want;
        } else {
            chi += (count[i] - want) * (count[i] - want) / want;
            df++;
        }
    }
    if (rest_p >= 5) {
        chi += (rest - rest_p) * (rest - rest_p) / rest_p;
        df++;
    }
    return chi2_tail(chi, df);
}

/* Two arms of counts. Cells with fewer than 10 in both together are one cell. */
static inline double chi2_two(const int *a, const int *b, int cells)
{
    double na = 0, nb = 0, chi = 0, rest_a = 0, rest_b = 0;
    int df = -1;
    for (int i = 0; i < cells; i++) {
        na += a[i];
        nb += b[i];
    }
    const double ra = sqrt(nb / na), rb = sqrt(na / nb);
    for (int i = 0; i <= cells; i++) {
        double x = rest_a, y = rest_b;
        if (i < cells) {
            x = a[i];
            y = b[i];
            if (x + y < 10) {
                rest_a += x;
                rest_b += y;
                continue;
            }
        } else if (x + y < 10) {
            continue;
        }
        chi += (x * ra - y * rb) * (x * ra - y * rb) / (x + y);
        df++;
    }
    return df < 1 ? 1 : chi2_tail(chi, df);
}

#endif
