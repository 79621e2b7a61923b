#ifndef QUASAR_TUI_SENSORS_H
#define QUASAR_TUI_SENSORS_H

/*
 * Figures of the machine, read by a thread of their own because a reading may take
 * long: temperature, power and memory of the GPU that computes, memory of this process.
 * The thread reads when it is asked and sleeps otherwise.
 */
struct sensors;

/* The latest reading; what is not known is NaN. */
struct sensors_view {
    double temp_c, power_w, gpu_used, gpu_total; /* bytes */
    double resident;                             /* bytes of this process */
};

/* library: as gpu_open. */
struct sensors *sensors_create(const char *library);
/* Ends the thread; one that hangs in the driver is left behind after a moment. */
void sensors_free(struct sensors *s);
/* Asks for a reading; never waits. device: its description and CUDA's number; NULL: no GPU
 * computes. */
void sensors_ask(struct sensors *s, const char *device, int index);
/* The latest reading; never waits for one. */
void sensors_get(struct sensors *s, struct sensors_view *out);

#endif
